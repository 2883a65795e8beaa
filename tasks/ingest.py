"""Turn one inbox item into one event."""

from csi.pipeline.ingest import ingest
from huey_config import huey
from tasks.dispatch import follow, step
from tasks.worker import runtime


@huey.task()
@step
def ingest_item(item_id: int) -> None:
    follow(ingest(runtime(), item_id))
