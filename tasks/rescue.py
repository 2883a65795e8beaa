"""Every minute once more by Huey: the maintenance loop does this all the time, and this remains if its thread ends."""

from huey import crontab

from csi.pipeline.rescue import rescue
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.periodic_task(crontab(minute="*"), priority=40)
def rescue_rows() -> None:
    dispatch(rescue(runtime(), huey.pending_count()))
