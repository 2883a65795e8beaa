"""Wake-ups become Huey tasks: many in one commit, the urgent first."""

import datetime
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from csi.errors import CsiError
from csi.logs import log
from csi.pipeline.flush import flush
from csi.pipeline.wake import Wake
from csi.store import db

PRIORITY = {"deliver": 30, "probe": 30, "flush": 30, "poll": 20, "ingest": 10, "job": 5}
"""Finish before you begin. Polls come before the items of others, so that one flood does not stop the rounds."""

URGENT = 50

_ended = [time.monotonic()]


def dispatch(wakes: Sequence[Wake]) -> None:
    """Make it happen. Should it fail, the rows are due all the same and the next rescue finds them."""
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


def follow(wakes: Sequence[Wake]) -> None:
    """Go on: lanes that have to be flushed now are flushed here, in the task that gave them something to flush. The way
    through the queue would cost more than the step."""
    from tasks.worker import runtime

    lanes = dict.fromkeys(str(wake.key) for wake in wakes if wake.step == "flush" and wake.at is None)
    opened = [wake for lane in lanes for wake in flush(runtime(), lane)]
    dispatch([*(wake for wake in wakes if wake.step != "flush" or wake.at is not None), *opened])


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
