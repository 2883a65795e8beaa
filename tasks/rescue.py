"""Every minute: rescue overdue rows. The maintenance loop does the same every second; this task remains if its thread
ends."""

from huey import crontab

from csi.pipeline.rescue import rescue
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.periodic_task(crontab(minute="*"), priority=40)
def rescue_rows() -> None:
    dispatch(rescue(runtime(), huey.pending_count()))
