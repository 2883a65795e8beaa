"""Send one batch. Huey's retries carry the wait of 20 and 60 seconds; the row decides when it ends."""

from typing import Any

from huey import CancelExecution

from csi.flow.deliver import deliver, probe
from csi.flow.settle import RetryAt
from huey_config import huey
from tasks.dispatch import follow, step
from tasks.worker import runtime


@huey.task(retries=2, retry_delay=20, retry_backoff=3, context=True)
@step
def deliver_batch(batch_id: int, task: Any = None) -> None:
    rt = runtime()
    result = deliver(rt, batch_id)
    if isinstance(result, RetryAt):
        task.retry_delay = max(result.when - rt.now(), 0.1)  # the row's wait, with its jitter
        raise CancelExecution(retry=True)
    follow(result)


@huey.task()
@step
def probe_receiver(destination: str) -> None:
    follow(probe(runtime(), destination))
