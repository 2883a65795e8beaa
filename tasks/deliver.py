"""Send one batch. Huey's retries carry the wait of 20 and 60 seconds; the row decides when it ends."""

import time
from collections.abc import Sequence
from typing import Any

from huey import CancelExecution

from csi.flow.deliver import deliver, probe
from csi.flow.settle import RetryAt
from csi.flow.wake import Wake
from huey_config import huey
from tasks.dispatch import dispatch, follow, step
from tasks.worker import is_stopping, runtime

IN_A_ROW_SECONDS = 20.0
"""So long a thread goes on with the next batch; then it comes to an end, which is a sign of life."""


@huey.task(retries=2, retry_delay=20, retry_backoff=3, context=True)
@step
def deliver_batch(batch_id: int, task: Any = None) -> None:
    rt = runtime()
    result = deliver(rt, batch_id)
    if isinstance(result, RetryAt):
        task.retry_delay = max(result.when - rt.now(), 0.1)  # the row's wait, with its jitter
        raise CancelExecution(retry=True)
    _go_on(result)


def _go_on(wakes: Sequence[Wake]) -> None:
    """The place that is free now is this worker's: through a queue that several share, the next batch would often come
    to one that has none. A batch that failed waits under a wake-up of its own."""
    end = time.monotonic() + IN_A_ROW_SECONDS
    while wakes:
        here = next((wake for wake in wakes if wake.step == "deliver" and wake.at is None), None)
        if here is None or is_stopping() or time.monotonic() > end:
            follow(wakes)
            return
        follow([wake for wake in wakes if wake is not here])
        result = deliver(runtime(), int(here.key))
        if isinstance(result, RetryAt):
            dispatch([Wake("deliver", here.key, at=result.when, urgent=here.urgent)])
            return
        wakes = result


@huey.task()
@step
def probe_receiver(destination: str) -> None:
    follow(probe(runtime(), destination))
