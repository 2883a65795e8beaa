"""Every hour: what is older than its time goes, a little at a time. A missed hour is made up by the next."""

from huey import crontab

from csi.worker.retention import prune_hourly
from huey_config import huey
from tasks.worker import runtime


@huey.periodic_task(crontab(minute="23"), priority=0)
def prune_rows() -> None:
    prune_hourly(runtime())
