"""Every minute: wake the watches that fall due in it, each at its time."""

from huey import crontab

from csi.pipeline.schedule import plan
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.periodic_task(crontab(minute="*"), priority=40)
def tick() -> None:
    dispatch(plan(runtime()))
