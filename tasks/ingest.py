"""Turn one inbox item, and those that were woken with it, into events."""

from csi.pipeline.flush import flush_due_lanes
from csi.pipeline.ingest import ingest
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.task()
def ingest_item(item_id: int) -> None:
    dispatch(flush_due_lanes(runtime(), ingest(runtime(), item_id)))
