"""Turn a lane's pending events into batches."""

from csi.pipeline.flush import flush
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.task()
def flush_tier(lane: str) -> None:
    dispatch(flush(runtime(), lane))
