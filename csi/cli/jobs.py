"""`csi jobs`: list, enqueue, retry and cancel the catalogue's jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.catalog import channel_admin
from csi.cli.command import DurationType, config_option, dry_run_option, installed, json_option, yes_option
from csi.cli.output import ago, confirm, echo_fields, echo_json, echo_table, plain
from csi.jobs import job_admin
from csi.store.catalog import jobs

if TYPE_CHECKING:
    from csi.store.catalog.jobs import CatalogJob

_JOB = click.argument("job", metavar="JOB")
_LIMIT = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
STATUSES = ("pending", "running", "failed", "completed", "dead")
# Repeated here, because importing them would load the store for `--help`; a test compares both.
TYPES = (
    "BACKFILL_CHANNEL",
    "REFRESH_CHANNEL_STATS",
    "REFRESH_HOT_VIDEOS",
    "REFRESH_MEDIUM_VIDEOS",
    "REFRESH_VIDEO_STATS",
    "RSS_POLL_CHANNEL",
    "REQUEUE_STUCK",
)


@click.group("jobs")
def jobs_group() -> None:
    """List, enqueue, retry and cancel jobs.

    JOB is the id of a job, or at least 6 characters of its beginning or end.
    """


@jobs_group.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only this status.")
@click.option("--type", "kind", type=click.Choice(TYPES), help="Only this type.")
@click.option("--channel", metavar="CHANNEL", help="Only jobs of this channel.")
@_LIMIT
@config_option
@json_option
def list_jobs(
    status: str | None, kind: str | None, channel: str | None, limit: int, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """List jobs, the newest first."""
    with installed(config_path) as rt:
        ref = channel_admin.find_channel(rt, channel).id if channel else None
        rows = jobs.page(status=status, type=kind, channel_id=ref, limit=limit)
        counted, now = jobs.counts(), rt.now()
    if as_json:
        echo_json(api_models.JobList.of(jobs=rows, counts=counted))
        return
    _echo_jobs(rows, now)
    click.echo(", ".join(f"{number:,} {word}" for word, number in counted.items()), err=True)


@jobs_group.command()
@_LIMIT
@config_option
@json_option
def dead(limit: int, config_path: Path | None, as_json: bool) -> None:
    """List jobs that were given up, with the reason."""
    with installed(config_path) as rt:
        rows, now = jobs.page(status="dead", limit=limit), rt.now()
    if as_json:
        echo_json({"jobs": [api_models.JobJson.of(job) for job in rows]})
        return
    _echo_jobs(rows, now)


def _echo_jobs(rows: list[CatalogJob], now: float) -> None:
    cells = []
    for job in rows:
        wait = job.scheduled_at - now
        due = "–" if job.status in jobs.SETTLED else f"in {ago(wait)}" if wait > 0 else "now"
        counts = [str(job.priority), f"{job.attempts}/{job.max_attempts}", f"{job.units:,}"]
        error = logs.redact(job.error_message or "")
        cells.append([job.id, job.type, job.channel_id or "–", job.status, *counts, due, error])
    echo_table(("ID", "TYPE", "CHANNEL", "STATUS", "PRIO", "TRIES", "UNITS", "DUE", "WHY"), cells)


@jobs_group.command()
@_JOB
@config_option
@json_option
def show(job: str, config_path: Path | None, as_json: bool) -> None:
    """Show a job and its history."""
    with installed(config_path):
        row = job_admin.find_job(job)
        found = api_models.JobDetail.of(row, history=jobs.history(row.id))
    if as_json:
        echo_json(found)
        return
    shown = found.model_dump()
    history = shown.pop("history")
    echo_fields(shown, 16)
    cells = [
        [event["occurred_at"], event["event_type"], f"{event['duration_ms'] or 0:,} ms", plain(event["details"])]
        for event in history
    ]
    echo_table(("WHEN", "WHAT", "AFTER", "DETAILS"), cells)


@jobs_group.command()
@click.argument("kind", metavar="TYPE")
@click.option("--channel", metavar="CHANNEL", help="The channel, where the type needs one.")
@click.option("--video", "videos", multiple=True, metavar="ID", help="Only these videos; repeatable.")
@click.option("--priority", type=click.IntRange(1, 10), help="Higher runs sooner.  [default: the type's]")
@click.option("--in", "delay", type=DurationType(), default=0.0, help="Start no sooner than this from now: 90s, 2h.")
@config_option
@json_option
def enqueue(
    kind: str, channel: str | None, videos: tuple[str, ...], priority: int | None, delay: float,
    config_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Enqueue a job of this TYPE; an open job for the same work is not duplicated."""
    with installed(config_path) as rt:
        ref = channel_admin.find_channel(rt, channel).id if channel else None
        found = job_admin.enqueue(rt, kind, channel_id=ref, video_ids=videos, priority=priority, delay=delay)
    if as_json:
        echo_json(api_models.JobEnqueued.of(found))
        return
    click.echo(f"{found.job.type} is {'already open' if found.is_duplicate else 'enqueued'}: job {found.job.id}")


@jobs_group.command()
@_JOB
@config_option
def retry(job: str, config_path: Path | None) -> None:
    """Make a failed, dead or postponed job due now; it resumes at its last step."""
    with installed(config_path) as rt:
        row = job_admin.find_job(job)
        job_admin.retry(rt, row)
    click.echo(f"job {row.id} ({row.type}) is due now")


@jobs_group.command()
@_JOB
@yes_option
@dry_run_option
@config_option
def cancel(job: str, yes: bool, dry_run: bool, config_path: Path | None) -> None:
    """Give up a job; a worker that runs it stops at its next step."""
    with installed(config_path) as rt:
        row = job_admin.find_job(job)
        if not dry_run:
            confirm(f"Cancel job {row.id} ({row.type}, {row.status})?", yes=yes)
            job_admin.cancel(rt, row)
    click.echo(f"job {row.id} ({row.type}) {'would be' if dry_run else 'is'} cancelled")
