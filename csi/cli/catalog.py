"""`csi channels`, `csi videos`, `csi jobs`, `csi archive`: the catalogue, its jobs and its archive files."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.catalog import archive_files, catalog_retention, channel_admin, data_api
from csi.cli.command import DurationType, config_option, dry_run_option, installed, json_option, yes_option
from csi.cli.output import (
    ago,
    confirm,
    echo_fields,
    echo_json,
    echo_table,
    iso,
    number,
    plain,
    plural,
    stamp,
)  # fmt: skip
from csi.jobs import job_admin
from csi.store.catalog import archives, channels, jobs, stats, videos

if TYPE_CHECKING:
    from csi.store.catalog.channels import Channel
    from csi.store.catalog.jobs import CatalogJob

_CHANNEL = click.argument("channel", metavar="CHANNEL")
_JOB = click.argument("job", metavar="JOB")
_PRIORITY = click.IntRange(1, 10)
_LIMIT = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
STATUSES = ("pending", "running", "failed", "completed", "dead")
# Repeated here, because importing them would load the store for `--help`; a test compares both.
TYPES = (
    "BACKFILL_CHANNEL", "REFRESH_CHANNEL_STATS", "REFRESH_HOT_VIDEOS", "REFRESH_MEDIUM_VIDEOS", "REFRESH_VIDEO_STATS",
    "RSS_POLL_CHANNEL", "REQUEUE_STUCK",
)  # fmt: skip


# ── csi channels ───────────────────────────────────────────────────────────────────────────────────────


@click.group("channels")
def channels_group() -> None:
    """Track channels: their videos and their statistics over time.

    CHANNEL is an id (UC…), a title, an @handle or a URL of a tracked channel.
    """


@channels_group.command()
@click.argument("what", metavar="ID|URL|@HANDLE")
@click.option("--priority", type=_PRIORITY, default=5, show_default=True, help="Of its jobs; higher runs sooner.")
@click.option("--videos", "cap", type=click.IntRange(min=1), help="Fetch only the newest N videos.  [default: all]")
@click.option("--no-watch", is_flag=True, help="Do not poll its feed; new uploads are then found once a day.")
@config_option
@json_option
def add(
    what: str, priority: int, cap: int | None, no_watch: bool, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Track a channel: fetch its videos, then refresh its statistics. Needs an API key; the lookup costs one unit."""
    with installed(config_path) as rt:
        added = channel_admin.register(rt, what, priority=priority, watch=not no_watch, videos=cap)
    if as_json:
        shown = api_models.ChannelAdded.of(added, job=added.job.id if added.job else None)
        echo_json({"result": added.result, **shown.model_dump()})
        return
    if added.result == "known":
        click.echo(f"{_title(added.channel)}: {added.remark}")
        return
    click.echo(f"tracking {_title(added.channel)}")
    click.echo(f"  job {added.job.id if added.job else '–'} fetches its videos")
    click.echo(f"  feed: {plain(logs.redact(added.watch))}")
    if added.remark:
        click.echo(f"  {plain(logs.redact(added.remark))}")


@channels_group.command("list")
@click.option("--status", type=click.Choice(["active", "paused", "deleted", "error"]), help="Only this status.")
@config_option
@json_option
def list_channels(status: str | None, config_path: Path | None, as_json: bool) -> None:
    """List the channels with today's statistics."""
    with installed(config_path) as rt:
        if as_json:
            echo_json(api_models.all_channels(rt, status))
            return
        now, share = rt.now(), data_api.share_of(rt)
        rows = [row for row in channels.dashboard(stats.day_of(now)) if status in (None, row["status"])]
    cells = []
    for row in rows:
        counts = ("subscriber_count", "daily_subscribers", "view_count", "daily_views", "video_count")
        refreshed = ago(None if row["last_refreshed_at"] is None else now - row["last_refreshed_at"])
        shown = [number(row[name]) for name in counts]
        cells.append([row["id"], row["title"], row["status"], str(row["priority"]), *shown, refreshed])
    head = ("ID", "TITLE", "STATUS", "PRIO", "SUBSCRIBERS", "TODAY", "VIEWS", "TODAY", "VIDEOS", "REFRESHED")
    echo_table(head, cells)
    enough = f": {data_api.TOO_MUCH}" if share.is_short else ""
    cost = f"keeping them fresh takes {share.needed:,} of {share.limit:,} API units a day{enough}"
    click.echo(f"{plural(len(rows), 'channel')}; {cost}", err=True)


@channels_group.command("show")
@_CHANNEL
@config_option
@json_option
def show_channel(channel: str, config_path: Path | None, as_json: bool) -> None:
    """Show a channel, its feed and its newest jobs."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        found = api_models.one_channel(rt, row)
    if as_json:
        echo_json(found)
        return
    echo_fields(api_models.ChannelJson.of(row).model_dump(), 20)
    counted = f"{found.known_videos:,}, of which {found.missing_videos:,} are missing at YouTube"
    click.echo(f"{'videos known':<20} {counted}")
    shown = found.model_dump()
    feed = shown["feed"]
    polled = "not watched" if feed is None else f"{feed['status']}, last poll {feed['last_polled_at'] or '–'}"
    click.echo(f"{'feed':<20} {polled}")
    for job in shown["jobs"]:
        error = plain(job["error_message"] or "")
        click.echo(f"{'job':<20} {job['id']}  {job['type']}  {job['status']}  {error}")


@channels_group.command()
@_CHANNEL
@config_option
def pause(channel: str, config_path: Path | None) -> None:
    """Pause a channel and its feed; running jobs finish."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        changed = channel_admin.pause(rt, row)
    click.echo(f"{_title(row)}: {'paused, with its feed' if changed else 'is paused; nothing changed'}")


@channels_group.command()
@_CHANNEL
@config_option
def resume(channel: str, config_path: Path | None) -> None:
    """Resume a channel: its feed is polled again, and videos published meanwhile are fetched."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        job = channel_admin.resume(rt, row)
    click.echo(f"{_title(row)}: {f'resumed; job {job.id} catches up' if job else f'is {row.status}; nothing changed'}")


@channels_group.command()
@_CHANNEL
@yes_option
@dry_run_option
@config_option
@json_option
def remove(channel: str, yes: bool, dry_run: bool, config_path: Path | None, as_json: bool) -> None:
    """Delete a channel with its videos, statistics and jobs; its feed is still polled, archive files are kept."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        counted = channel_admin.remove(rt, row, dry_run=True)
        if not dry_run:
            rows = f"{counted['videos']:,} videos and {counted['channel_stats'] + counted['video_stats']:,} statistics"
            confirm(f"Delete {_title(row)} with {rows}?", yes=yes)
            counted = channel_admin.remove(rt, row)
    if as_json:
        echo_json(api_models.ChannelRemoved.of(id=row.id, dry_run=dry_run, removed=counted))
        return
    words = ", ".join(f"{count:,} rows of {table}" for table, count in counted.items() if count)
    click.echo(f"{_title(row)}: {'would be removed' if dry_run else 'removed'}: {words}")


@channels_group.command("priority")
@_CHANNEL
@click.argument("priority", type=_PRIORITY)
@config_option
def set_priority(channel: str, priority: int, config_path: Path | None) -> None:
    """Set the priority of a channel's future jobs: 1 to 10, higher runs sooner."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        channel_admin.set_priority(row, priority)
    click.echo(f"{_title(row)}: priority {priority}")


@channels_group.command()
@_CHANNEL
@click.option("--priority", type=_PRIORITY, help="Of this job.  [default: the channel's]")
@click.option("--videos", "cap", type=click.IntRange(min=1), help="Only the newest N videos.  [default: all]")
@config_option
@json_option
def backfill(
    channel: str, priority: int | None, cap: int | None, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Fetch a channel's videos again."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        found = channel_admin.backfill(rt, row, priority=priority, videos=cap)
    if as_json:
        echo_json(api_models.JobEnqueued.of(found))
        return
    word = "is already open as job" if found.is_duplicate else "is enqueued as job"
    click.echo(f"the backfill of {_title(row)} {word} {found.job.id}")


@channels_group.command()
@_CHANNEL
@click.option("--days", type=click.IntRange(1, 36_500), default=90, show_default=True, help="How many days back.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@config_option
@json_option
def trend(channel: str, days: int, as_csv: bool, config_path: Path | None, as_json: bool) -> None:
    """Show a channel's statistics by day; an unknown gain is empty."""
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        captures = stats.trend(row.id, rt.now() - days * 86_400)
    rows = [api_models.TrendDay.of(one).model_dump() for one in captures]
    names = list(api_models.TrendDay.model_fields)
    if as_json:
        echo_json({"channel_id": row.id, "days": rows})
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, fieldnames=names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        echo_table([name.upper() for name in names], [[*map(number, day.values())] for day in rows])


def _title(row: Channel) -> str:
    return f"{plain(row.title or row.id, 60)} ({row.id})"


# ── csi videos ─────────────────────────────────────────────────────────────────────────────────────────


@click.group("videos")
def videos_group() -> None:
    """Show the videos of tracked channels."""


@videos_group.command("list")
@_CHANNEL
@click.option("--days", type=click.IntRange(min=1), help="Only videos published in the last N days.")
@_LIMIT
@config_option
@json_option
def list_videos(channel: str, days: int | None, limit: int, config_path: Path | None, as_json: bool) -> None:
    """List a channel's videos, the newest first."""
    with installed(config_path) as rt:
        now, row = rt.now(), channel_admin.find_channel(rt, channel)
        found = videos.of_channel(row.id, since=now - days * 86_400 if days else 0.0, limit=limit)
    if as_json:
        echo_json(api_models.VideoList.of(channel_id=row.id, videos=found))
        return
    cells = []
    for video in found:
        counts = [number(value) for value in (video.view_count, video.like_count, video.comment_count)]
        there = "yes" if video.missing_since is None else f"missing for {ago(now - video.missing_since)}"
        cells.append([video.id, ago(now - video.published_at), video.refresh_tier, *counts, there, video.title])
    echo_table(("ID", "AGE", "TIER", "VIEWS", "LIKES", "COMMENTS", "THERE", "TITLE"), cells)


@videos_group.command("show")
@click.argument("video", metavar="VIDEO")
@config_option
@json_option
def show_video(video: str, config_path: Path | None, as_json: bool) -> None:
    """Show a video and its last 24 captures."""
    with installed(config_path):
        row, captures = videos.find(video), stats.recent(video, 24)
    if row is None:
        raise channel_admin.CatalogRefused(
            f"video {video[:40]!r} is not in the catalogue; VIDEO is the id behind watch?v="
        )
    found = api_models.VideoDetail.of(row, stats=captures)
    if as_json:
        echo_json(found)
        return
    echo_fields(found.model_dump(exclude={"stats"}), 18)
    names = ("captured_at", "view_count", "like_count", "comment_count", "hourly_views", "daily_views")
    head = ("CAPTURED", "VIEWS", "LIKES", "COMMENTS", "LAST HOUR", "LAST DAY")
    echo_table(head, [[number(getattr(one, name)) for name in names] for one in found.stats])


@videos_group.command()
@_LIMIT
@config_option
@json_option
def hot(limit: int, config_path: Path | None, as_json: bool) -> None:
    """List videos up to 7 days old, the most viewed in the last hour first."""
    with installed(config_path) as rt:
        now, rows = rt.now(), videos.hottest(limit)
    if as_json:
        echo_json(api_models.HotVideos.of_rows(rows))
        return
    cells = [
        [row.id, row.channel_id, ago(now - row.published_at), *map(number, (row.view_count, hour, day)), row.title]
        for row, hour, day in rows
    ]
    echo_table(("ID", "CHANNEL", "AGE", "VIEWS", "LAST HOUR", "LAST DAY", "TITLE"), cells)


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


@jobs_group.command("show")
@_JOB
@config_option
@json_option
def show_job(job: str, config_path: Path | None, as_json: bool) -> None:
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
@click.option("--priority", type=_PRIORITY, help="Higher runs sooner.  [default: the type's]")
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
