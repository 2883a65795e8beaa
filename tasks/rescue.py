"""Every minute once more by Huey: the pulse does this all the time, and this is what is left if it should die."""

from huey import crontab

from csi.pipeline.rescue import rescue
from huey_config import huey
from tasks.dispatch import dispatch, step
from tasks.worker import runtime


@huey.periodic_task(crontab(minute="*"), priority=40)
@step
def rescue_rows() -> None:
    dispatch(rescue(runtime(), huey.pending_count()))
