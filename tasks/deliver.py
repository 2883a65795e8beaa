"""Send one batch, and the batches that wait behind it. Huey's retries carry the waits of 20 and 60 seconds."""

from typing import Any

from csi.pipeline.deliver import deliver, probe, test
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.task(retries=2, retry_delay=20, retry_backoff=3, context=True)
def deliver_batch(batch_id: int, task: Any = None) -> None:
    for wakes in deliver(runtime(), batch_id):
        dispatch(wakes, task)


@huey.task()
def probe_receiver(destination: str) -> None:
    dispatch(probe(runtime(), destination))


@huey.task()
def test_receiver(destination: str) -> None:
    dispatch(test(runtime(), destination))
