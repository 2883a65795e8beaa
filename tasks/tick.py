"""Every minute: wake the watches that are due within it and have no scheduled poll.

A poll schedules the next one of its watch (csi.pipeline.poll), so most watches never need this task. It finds new
watches, and those whose scheduled poll was lost, and schedules each at its time.
"""

from huey import crontab

from csi.pipeline.schedule import plan
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.periodic_task(crontab(minute="*"), priority=40)
def tick() -> None:
    dispatch(plan(runtime()))
