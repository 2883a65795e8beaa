"""Turn one inbox item, and those that were woken with it, into events."""

from csi.pipeline import ingest
from csi.pipeline.flush import flush_due_lanes
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.task()
def ingest_item(item_id: int) -> None:
    dispatch(flush_due_lanes(runtime(), ingest.ingest(runtime(), item_id)))


@huey.task()
def ingest_ahead(key: str) -> None:
    dispatch(flush_due_lanes(runtime(), ingest.ingest_ahead(runtime())))
