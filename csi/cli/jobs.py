"""`csi jobs`: what the catalogue has to do, does, and did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import logs
from csi.catalog import channel_admin, json_shapes
from csi.cli.config import config_option, json_option
from csi.cli.installation import installed
from csi.cli.output import AgeType, confirm, echo_json
from csi.cli.terminal import ago, plain, table
from csi.jobs import job_admin
from csi.store.catalog import jobs as store

if TYPE_CHECKING:
    from csi.store.catalog.jobs import Job

_JOB = click.argument("job", metavar="JOB")
STATUSES = ("pending", "running", "failed", "completed", "dead")
TYPES = (
    "BACKFILL_CHANNEL",
    "REFRESH_CHANNEL_STATS",
    "REFRESH_HOT_VIDEOS",
    "REFRESH_MEDIUM_VIDEOS",
    "REFRESH_VIDEO_STATS",
    "RSS_POLL_CHANNEL",
    "REQUEUE_STUCK",
)
_STATUS = click.Choice(STATUSES)
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group()
def jobs() -> None:
    """Look at jobs, enqueue, retry and cancel them.

    JOB is the id of a job, or at least 6 characters of its beginning or end.
    """


@jobs.command("list")
@click.option("--status", type=_STATUS, help="Only these.")
@click.option("--type", "kind", type=click.Choice(TYPES), help="Only these.")
@click.option("--channel", metavar="CHANNEL", help="Only those of this channel.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@config_option
@json_option
def list_jobs(
    status: str | None, kind: str | None, channel: str | None, limit: int, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Show jobs, the newest first."""
    with installed(config_path) as rt:
        ref = channel_admin.find_channel(rt, channel).id if channel else None
        rows = store.page(status=status, type=kind, channel_id=ref, limit=limit)
        counted, now = store.counts(), rt.now()
    if as_json:
        echo_json({"jobs": [json_shapes.shape(job) for job in rows], "counts": counted})
        return
    _print(rows, now)
    click.echo(", ".join(f"{number:,} {word}" for word, number in counted.items()), err=True)


@jobs.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
@config_option
@json_option
def dead(limit: int, config_path: Path | None, as_json: bool) -> None:
    """Show jobs that were given up, and why."""
    with installed(config_path) as rt:
        rows, now = store.page(status="dead", limit=limit), rt.now()
    if as_json:
        echo_json({"jobs": [json_shapes.shape(job) for job in rows]})
        return
    _print(rows, now)


@jobs.command()
@_JOB
@config_option
@json_option
def show(job: str, config_path: Path | None, as_json: bool) -> None:
    """Show a job and its whole history."""
    with installed(config_path):
        row = job_admin.find_job(job)
        history = [json_shapes.shape(event) for event in store.history(row.id)]
    if as_json:
        echo_json(json_shapes.shape(row) | {"history": history})
        return
    for name, value in json_shapes.shape(row).items():
        click.echo(f"{name:<16} {'–' if value is None else plain(value, 100)}")
    cells = [
        [event["occurred_at"], event["event_type"], f"{event['duration_ms'] or 0:,} ms", plain(event["details"])]
        for event in history
    ]
    for line in table(("WHEN", "WHAT", "AFTER", "DETAILS"), cells):
        click.echo(line)


@jobs.command()
@click.argument("kind", metavar="TYPE")
@click.option("--channel", metavar="CHANNEL", help="The channel, where the type needs one.")
@click.option("--video", "videos", multiple=True, metavar="ID", help="Only these videos; repeatable.")
@click.option("--priority", type=click.IntRange(1, 10), help="Higher is sooner.  [default: the type's]")
@click.option("--in", "delay", type=AgeType(), default=0.0, help="Not before so long from now: 90s, 2h.")
@config_option
@json_option
def enqueue(
    kind: str, channel: str | None, videos: tuple[str, ...], priority: int | None, delay: float,
    config_path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Put a job of this TYPE into the ledger; one that is open already is not doubled."""
    with installed(config_path) as rt:
        ref = channel_admin.find_channel(rt, channel).id if channel else None
        found = job_admin.enqueue(rt, kind, channel_id=ref, video_ids=videos, priority=priority, delay=delay)
    if as_json:
        echo_json({"job": json_shapes.shape(found.job), "duplicate": found.is_duplicate})
        return
    word = "is open already: job" if found.is_duplicate else "is enqueued: job"
    click.echo(f"{found.job.type} {word} {found.job.id}")


@jobs.command()
@_JOB
@config_option
def retry(job: str, config_path: Path | None) -> None:
    """Make a job due now that failed, is dead or waits; it goes on where it was."""
    with installed(config_path) as rt:
        row = job_admin.find_job(job)
        job_admin.retry(rt, row)
    click.echo(f"job {row.id} ({row.type}) is due now")


@jobs.command()
@_JOB
@_YES
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@config_option
def cancel(job: str, yes: bool, dry_run: bool, config_path: Path | None) -> None:
    """Give up a job; a worker that is at it stops at its next step."""
    with installed(config_path) as rt:
        row = job_admin.find_job(job)
        if not dry_run:
            confirm(f"Cancel job {row.id} ({row.type}, {row.status})?", yes=yes)
            job_admin.cancel(rt, row)
    click.echo(f"job {row.id} ({row.type}) {'would be' if dry_run else 'is'} cancelled")


def _print(rows: list[Job], now: float) -> None:
    head = ("ID", "TYPE", "CHANNEL", "STATUS", "PRIO", "TRIES", "UNITS", "DUE", "WHY")
    for line in table(head, [_row(job, now) for job in rows]):
        click.echo(line)


def _row(job: Job, now: float) -> list[str]:
    wait = job.scheduled_at - now
    due = "–" if job.status in store.SETTLED else f"in {ago(wait)}" if wait > 0 else "now"
    tries = f"{job.attempts}/{job.max_attempts}"
    cells = [job.id, job.type, job.channel_id or "–", job.status, str(job.priority), tries, f"{job.units:,}", due]
    return [*cells, logs.redact(job.error_message or "")]
