"""Every hour: delete rows that are older than their retention, in small chunks. The next hour makes up a missed one."""

from huey import crontab

from csi.worker.retention import prune_hourly
from huey_config import huey
from tasks.worker import runtime


@huey.periodic_task(crontab(minute="23"), priority=0)
def prune_rows() -> None:
    prune_hourly(runtime())
