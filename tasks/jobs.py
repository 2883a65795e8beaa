"""The job ledger: a wake-up takes the most urgent job; every minute due catalogue jobs are enqueued."""

from huey import crontab

from csi.catalog.catalog_jobs import HANDLERS, plan_jobs
from csi.catalog.catalog_retention import archive_old_rows_hourly
from csi.jobs.run_job import run_next_job
from huey_config import huey
from tasks.dispatch import dispatch
from tasks.worker import runtime


@huey.task()
def run_job(_place: int) -> None:
    dispatch(run_next_job(runtime(), HANDLERS))


@huey.periodic_task(crontab(minute="*"), priority=5)
def plan_minute() -> None:
    dispatch(plan_jobs(runtime()))


@huey.periodic_task(crontab(minute="41"), priority=0)
def tidy_catalogue() -> None:
    archive_old_rows_hourly(runtime())
