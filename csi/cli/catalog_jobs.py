"""`csi jobs`, `csi archive`: the catalogue's jobs and its archive files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.catalog import archive_files, catalog_retention, channel_admin
from csi.cli.catalog import LIMIT, PRIORITY
from csi.cli.command import DurationType, audited, config_option, dry_run_option, installed, json_option, yes_option
from csi.cli.output import (
    ago,
    confirm,
    echo_fields,
    echo_json,
    echo_table,
    iso,
    plain,
    stamp,
)  # fmt: skip
from csi.jobs import job_admin
from csi.store.catalog import archives, jobs
from csi.store.queries import job_figures

if TYPE_CHECKING:
    from csi.store.catalog.jobs import CatalogJob

_JOB = click.argument("job", metavar="JOB")
STATUSES = ("pending", "running", "failed", "completed", "dead")
# Repeated here, because importing them would load the store for `--help`; a test compares both.
TYPES = (
    "BACKFILL_CHANNEL", "REFRESH_CHANNEL_STATS", "REFRESH_HOT_VIDEOS", "REFRESH_MEDIUM_VIDEOS", "REFRESH_VIDEO_STATS",
    "RSS_POLL_CHANNEL", "REQUEUE_STUCK",
)  # fmt: skip


# ── csi jobs ───────────────────────────────────────────────────────────────────────────────────────────


@click.group("jobs")
def jobs_group() -> None:
    """List, enqueue, retry and cancel jobs.

    JOB is the id of a job, or at least 6 characters of its beginning or end.
    """


@jobs_group.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only this status.")
@click.option("--type", "kind", type=click.Choice(TYPES), help="Only this type.")
@click.option("--channel", metavar="CHANNEL", help="Only jobs of this channel.")
@LIMIT
@config_option
@json_option
def list_jobs(
    status: str | None, kind: str | None, channel: str | None, limit: int, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """List jobs, the newest first."""
    with installed(config_path) as rt:
        ref = channel_admin.find_channel(rt, channel).id if channel else None
        rows = jobs.page(status=status, type=kind, channel_id=ref, limit=limit)
        now = rt.now()
        counted, waits = job_figures.counts(), job_figures.waiting_reasons(rows, now)
        shown = api_models.describe_jobs(rows, now) if as_json else []
    if as_json:
        echo_json(api_models.JobList.of(jobs=shown, counts=counted))
        return
    _echo_jobs(rows, waits, now)
    click.echo(", ".join(f"{number:,} {word}" for word, number in counted.items()), err=True)


@jobs_group.command()
@LIMIT
@config_option
@json_option
def dead(limit: int, config_path: Path | None, as_json: bool) -> None:
    """List jobs that were given up, with the reason."""
    with installed(config_path) as rt:
        rows, now = jobs.page(status="dead", limit=limit), rt.now()
    if as_json:
        echo_json({"jobs": [api_models.JobJson.of(job) for job in rows]})
        return
    _echo_jobs(rows, {}, now)


def _echo_jobs(rows: list[CatalogJob], waits: dict[str, str], now: float) -> None:
    cells = []
    for job in rows:
        wait = job.scheduled_at - now
        due = "–" if job.status in jobs.SETTLED else f"in {ago(wait)}" if wait > 0 else "now"
        counts = [str(job.priority), str(job.attempts), f"{job.units:,}"]
        error = logs.redact(waits.get(job.id) or job.error_message or "")
        cells.append([job.id, job.type, job.channel_id or "–", job.status, *counts, due, error])
    echo_table(("ID", "TYPE", "CHANNEL", "STATUS", "PRIO", "TRIES", "UNITS", "DUE", "WHY"), cells)


@jobs_group.command("show")
@_JOB
@config_option
@json_option
def show_job(job: str, config_path: Path | None, as_json: bool) -> None:
    """Show a job and its history."""
    with installed(config_path) as rt:
        found = api_models.describe_job(job_admin.find_job(job), rt.now())
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
@click.option("--priority", type=PRIORITY, help="Higher runs sooner.  [default: the type's]")
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
        found = audited(
            rt,
            "csi jobs enqueue",
            lambda: job_admin.enqueue(rt, kind, channel_id=ref, video_ids=videos, priority=priority, delay=delay),
            lambda found: f"{found.job.type}: job {found.job.id}",
        )
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
        audited(rt, f"csi jobs retry {row.id}", lambda: job_admin.retry(rt, row), lambda _: f"{row.type} is due now")
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
            audited(
                rt, f"csi jobs cancel {row.id}", lambda: job_admin.cancel(rt, row), lambda _: f"{row.type}: cancelled"
            )
    click.echo(f"job {row.id} ({row.type}) {'would be' if dry_run else 'is'} cancelled")


# ── csi archive ────────────────────────────────────────────────────────────────────────────────────────


@click.group()
def archive() -> None:
    """Move old catalogue rows into archive files, show them, and restore them."""


@archive.command("run")
@yes_option
@dry_run_option
@config_option
@json_option
def run_now(yes: bool, dry_run: bool, config_path: Path | None, as_json: bool) -> None:
    """Archive rows that are past their retention now, without waiting for the hourly run."""
    with installed(config_path) as rt:
        if not dry_run:
            confirm(f"Move old catalogue rows into files in {archive_files.folder(rt)}?", yes=yes)
        done = catalog_retention.survey(rt) if dry_run else catalog_retention.archive_old_rows(rt)
    if as_json:
        echo_json({"rows": done.rows, "total": done.total, "dry_run": dry_run})
        return
    for word, count in done.rows.items():
        click.echo(f"{'would be ' if dry_run else ''}{word}: {count:,}")
    if not done.total:
        click.echo("no row is past its retention")


@archive.command("list")
@config_option
@json_option
def list_files(config_path: Path | None, as_json: bool) -> None:
    """List the archive files, and until when restored rows are kept."""
    with installed(config_path) as rt:
        rows, where = archives.every(), archive_files.folder(rt)
    if as_json:
        times = [{"written_at": iso(row.written_at), "kept_until": iso(row.kept_until)} for row in rows]
        echo_json({"folder": str(where), "archives": [vars(row) | at for row, at in zip(rows, times, strict=True)]})
        return
    cells = [[r.name, f"{r.rows:,}", f"{r.bytes:,}", stamp(r.written_at), stamp(r.kept_until)] for r in rows]
    echo_table(("NAME", "ROWS", "BYTES", "WRITTEN", "RESTORED UNTIL"), cells)
    click.echo(f"{len(rows)} files in {where}", err=True)


@archive.command("show")
@click.argument("name")
@config_option
def show_archive(name: str, config_path: Path | None) -> None:
    """Print the rows of a file, one JSON object per line, without restoring them."""
    with installed(config_path) as rt:
        book = archives.find(name)
        if book is None:
            raise archive_files.ArchiveError(f"there is no archive {name[:80]!r}; see `csi archive list`")
        for row in archive_files.read(rt, book):
            error = {"error_message": logs.redact(row["error_message"])} if row.get("error_message") else {}
            click.echo(json.dumps(row | error))


@archive.command()
@click.argument("name")
@click.option("--keep", "days", type=click.IntRange(1, 3650), default=7, show_default=True, help="Days to keep them.")
@config_option
@json_option
def restore(name: str, days: int, config_path: Path | None, as_json: bool) -> None:
    """Copy the rows of a file back into their table; after --keep days they are archived again."""
    with installed(config_path) as rt:
        done = archive_files.restore(rt, name, keep_days=days)
    if as_json:
        echo_json({"name": done.name, "rows": done.rows, "kept_until": iso(done.kept_until)})
        return
    click.echo(f"restored {done.rows:,} rows of {done.name}, kept until {stamp(done.kept_until)}")
