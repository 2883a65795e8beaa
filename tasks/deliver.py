"""Send one batch. Huey's retries carry the wait of 20 and 60 seconds; the row decides when it ends."""

import time
from typing import Any

from huey import CancelExecution

from csi.pipeline.deliver import carry, probe, take
from csi.pipeline.settle import Held
from csi.pipeline.wake import Wake
from huey_config import huey
from tasks.dispatch import dispatch, follow, step
from tasks.worker import is_stopping, runtime

IN_A_ROW_SECONDS = 20.0
"""So long a thread goes on with the next batch; then it comes to an end, which is a sign of life."""


@huey.task(retries=2, retry_delay=20, retry_backoff=3, context=True)
@step
def deliver_batch(batch_id: int, task: Any = None) -> None:
    """The place that is free afterwards is this worker's, and the thread goes on with what waits for it: through a
    queue that several share, the next batch would often come to one that has no place."""
    rt, end = runtime(), time.monotonic() + IN_A_ROW_SECONDS
    held = take(rt, batch_id)
    while held is not None:
        done = carry(rt, held, go_on=not is_stopping() and time.monotonic() < end)
        follow(done.wakes)
        if done.retry is not None:
            _try_again(task, held, done.retry.when)
        held = done.following


def _try_again(task: Any, held: Held, when: float) -> None:
    """Huey's own retry for the batch that the task was made for; one that it took along gets a wake-up of its own."""
    if held.batch.id != task.args[0]:
        dispatch([Wake("deliver", held.batch.id, at=when, urgent=held.batch.tier == "urgent")])
        return
    task.retry_delay = max(when - runtime().now(), 0.1)  # the row's wait, with its jitter
    raise CancelExecution(retry=True)


@huey.task()
@step
def probe_receiver(destination: str) -> None:
    follow(probe(runtime(), destination))
