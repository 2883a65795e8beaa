"""Wake-ups become Huey tasks: many in one commit, the urgent first."""

from collections.abc import Sequence
from typing import Any

from huey import CancelExecution
from huey.api import Task

from csi import clock
from csi.pipeline.wake import Wake

PRIORITY = {
    "deliver": 30,
    "probe": 30,
    "test": 30,
    "flush": 30,
    "poll": 20,
    "inbound": 15,
    "ingest": 10,
    "subscribe": 5,
    "streams": 5,
    "icons": 5,
    "job": 5,
    "ahead": 0,
}
"""Later steps come first. Polls come before the items of other watches, so that one flood does not stop all polls.
What a flood may do ahead of its turn comes after everything else."""

URGENT = 50


def dispatch(wakes: Sequence[Wake], task: Any = None) -> None:
    """Enqueue these. If that fails, the rows stay due and the maintenance loop finds them.

    A retry of the row that `task` was made for is Huey's own retry; the wait, with its jitter, is the row's.
    """
    retry = next((wake for wake in wakes if wake.is_retry and task is not None and wake.key == task.args[0]), None)
    if others := [wake for wake in wakes if wake is not retry]:
        from huey_config import huey

        huey.enqueue_wakes(others, _task)
    if retry is not None and retry.at is not None:
        task.retry_delay = max(retry.at - clock.now(), 0.1)
        raise CancelExecution(retry=True)


def _task(wake: Wake) -> Task:
    from tasks import deliver, inbound, ingest, jobs, lookups, poll
    from tasks.flush import flush_tier

    wrapper = {
        "poll": poll.poll_watch,
        "ingest": ingest.ingest_item,
        "ahead": ingest.ingest_ahead,
        "flush": flush_tier,
        "deliver": deliver.deliver_batch,
        "probe": deliver.probe_receiver,
        "test": deliver.test_receiver,
        "job": jobs.run_job,
        "inbound": inbound.process_message,
        "subscribe": inbound.request_subscription,
        "streams": lookups.check_streams,
        "icons": lookups.find_icons,
    }[wake.step]
    return wrapper.s(wake.key, priority=URGENT if wake.urgent else PRIORITY[wake.step])
