"""Wake-ups become Huey tasks: many in one commit, the urgent first."""

import datetime
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from huey import CancelExecution

from csi import clock
from csi.errors import CsiError
from csi.logs import log
from csi.pipeline.wake import Wake
from csi.store import db

PRIORITY = {"deliver": 30, "probe": 30, "flush": 30, "poll": 20, "ingest": 10, "job": 5}
"""Finish before you begin. Polls come before the items of others, so that one flood does not stop the rounds."""

URGENT = 50

_ended = [time.monotonic()]


def dispatch(wakes: Sequence[Wake], task: Any = None) -> None:
    """Enqueue these. If that fails, the rows are due all the same and the maintenance loop finds them.

    A retry of the row that `task` was made for is Huey's own retry; the wait, with its jitter, is the row's.
    """
    retry = next((wake for wake in wakes if wake.is_retry and task is not None and wake.key == task.args[0]), None)
    _enqueue([wake for wake in wakes if wake is not retry])
    if retry is not None and retry.at is not None:
        task.retry_delay = max(retry.at - clock.now(), 0.1)
        raise CancelExecution(retry=True)


def _enqueue(wakes: Sequence[Wake]) -> None:
    if not wakes:
        return
    from huey_config import huey

    try:
        now = [_task(wake) for wake in wakes if wake.at is None]
        if now:
            huey.enqueue_many(now)
        for wake in wakes:
            if wake.at is not None:
                huey.add_schedule(_task(wake))
    except Exception as error:  # noqa: BLE001 queue deleted, locked, server away: the rows remain
        log.warning("wake-ups could not be queued; rescue repeats them", wakes=len(wakes), error=str(error))


def last_end() -> float:
    """When a task of this process last came to its end, well or not; its start counts, too. Monotonic."""
    return _ended[0]


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    """The edge of a task: what goes wrong is one line with its context, and the row's lease brings it back."""

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except CsiError as error:
            log.error("task failed", task=function.__name__, key=args[:1], error=str(error))
        except db.DatabaseError as error:
            log.error("task met the database in trouble", task=function.__name__, key=args[:1], error=str(error)[:300])
            db.drop_broken_connection()
        finally:
            _ended[:] = [time.monotonic()]
        return None

    return guarded


def _task(wake: Wake) -> Any:
    from tasks import deliver, ingest, jobs, poll
    from tasks.flush import flush_tier

    wrapper = {
        "poll": poll.poll_watch,
        "ingest": ingest.ingest_item,
        "flush": flush_tier,
        "deliver": deliver.deliver_batch,
        "probe": deliver.probe_receiver,
        "job": jobs.run_job,
    }[wake.step]
    # Aware: Huey cuts a naive time to whole seconds, and a wake-up that comes too early is none.
    eta = None if wake.at is None else datetime.datetime.fromtimestamp(wake.at, datetime.UTC)
    return wrapper.s(wake.key, eta=eta, priority=URGENT if wake.urgent else PRIORITY[wake.step])
