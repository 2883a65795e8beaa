"""`csi channels`, `csi videos`: the tracked channels, their videos and statistics."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from csi import api_models, logs
from csi.catalog import channel_admin, data_api
from csi.cli import catalog_figures
from csi.cli.command import audited, config_option, dry_run_option, installed, json_option, yes_option
from csi.cli.output import (
    ago,
    confirm,
    echo_fields,
    echo_json,
    echo_table,
    number,
    plain,
    plural,
)  # fmt: skip
from csi.errors import SOME_FAILED, CsiError
from csi.store.catalog import channels, stats, videos

if TYPE_CHECKING:
    from csi.catalog.channel_admin import RegisterResult
    from csi.store.catalog.channels import Channel

R = TypeVar("R")
_CHANNEL = click.argument("channel", metavar="CHANNEL")
_CHANNELS = click.argument("names", metavar="CHANNEL...", nargs=-1, required=True)
PRIORITY = click.IntRange(1, 10)
LIMIT = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")


# ── csi channels ───────────────────────────────────────────────────────────────────────────────────────


@click.group("channels")
def channels_group() -> None:
    """Track channels: their videos and their statistics over time.

    CHANNEL is an id (UC…), a title, an @handle or a URL of a tracked channel.
    """


@channels_group.command()
@click.argument("whats", metavar="ID|URL|@HANDLE...", nargs=-1, required=True)
@click.option("--priority", type=PRIORITY, default=5, show_default=True, help="Of its jobs; higher runs sooner.")
@click.option("--videos", "cap", type=click.IntRange(min=1), help="Fetch only the newest N videos.  [default: all]")
@click.option("--no-watch", is_flag=True, help="Do not poll its feed; new uploads are then found once a day.")
@config_option
@json_option
def add(
    whats: tuple[str, ...], priority: int, cap: int | None, no_watch: bool, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Track channels: fetch their videos, then refresh their statistics. Needs an API key; a lookup costs one unit.

    Of several, those that can be tracked are; exit code 5 when one cannot.
    """
    with installed(config_path) as rt:

        def add_one(what: str) -> RegisterResult:
            return audited(
                rt,
                "csi channels add",
                lambda: channel_admin.register(rt, what, priority=priority, watch=not no_watch, videos=cap),
                lambda added: f"{added.result}: {added.channel.title or added.channel.id}",
            )

        done, failed = _each(whats, add_one)
    if as_json:
        found = [
            {
                "result": one.result,
                **api_models.ChannelAdded.of(one, job=one.job.id if one.job else None).model_dump(),
            }
            for one in done
        ]
        echo_json(found[0] if len(whats) == 1 else {"channels": found})
    else:
        for one in done:
            if one.result == "known":
                click.echo(f"{_title(one.channel)}: {one.remark}")
                continue
            click.echo(f"tracking {_title(one.channel)}")
            click.echo(f"  job {one.job.id if one.job else '–'} fetches its videos")
            click.echo(f"  feed: {plain(logs.redact(one.watch))}")
            if one.remark:
                click.echo(f"  {plain(logs.redact(one.remark))}")
    sys.exit(SOME_FAILED if failed else 0)


def _each(whats: tuple[str, ...], act: Callable[[str], R]) -> tuple[list[R], bool]:
    """The results, and whether one failed. The error of a single one is raised."""
    done, failed = list[R](), False
    for what in whats:
        try:
            done.append(act(what))
        except CsiError as error:
            if len(whats) == 1:
                raise
            failed = True
            click.echo(f"csi: {plain(what, 80)}: {plain(logs.redact(str(error)))}", err=True)
    return done, failed


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
@_CHANNELS
@config_option
def pause(names: tuple[str, ...], config_path: Path | None) -> None:
    """Pause channels and their feeds; running jobs finish. Exit code 5 when one cannot be paused."""
    with installed(config_path) as rt:

        def pause_one(name: str) -> None:
            row = channel_admin.find_channel(rt, name)
            changed = audited(
                rt,
                f"csi channels pause {row.id}",
                lambda: channel_admin.pause(rt, row),
                lambda changed: "paused, with its feed" if changed else "nothing changed",
            )
            click.echo(f"{_title(row)}: {'paused, with its feed' if changed else 'is paused; nothing changed'}")

        _, failed = _each(names, pause_one)
    sys.exit(SOME_FAILED if failed else 0)


@channels_group.command()
@_CHANNELS
@config_option
def resume(names: tuple[str, ...], config_path: Path | None) -> None:
    """Resume channels: their feeds are polled again, and videos published meanwhile are fetched.

    Exit code 5 when one cannot be resumed.
    """
    with installed(config_path) as rt:

        def resume_one(name: str) -> None:
            row = channel_admin.find_channel(rt, name)
            job = audited(
                rt,
                f"csi channels resume {row.id}",
                lambda: channel_admin.resume(rt, row),
                lambda job: "resumed" if job else "nothing changed",
            )
            what = f"resumed; job {job.id} catches up" if job else f"is {row.status}; nothing changed"
            click.echo(f"{_title(row)}: {what}")

        _, failed = _each(names, resume_one)
    sys.exit(SOME_FAILED if failed else 0)


@channels_group.command()
@_CHANNELS
@yes_option
@dry_run_option
@config_option
@json_option
def remove(names: tuple[str, ...], yes: bool, dry_run: bool, config_path: Path | None, as_json: bool) -> None:
    """Delete channels with their videos, statistics and jobs; their feeds are still polled, archive files are kept.

    Exit code 5 when one cannot be removed.
    """
    with installed(config_path) as rt:

        def remove_one(name: str) -> tuple[Channel, dict[str, int]]:
            row = channel_admin.find_channel(rt, name)
            counted = channel_admin.remove(rt, row, dry_run=True)
            if dry_run:
                return row, counted
            rows = f"{counted['videos']:,} videos and {counted['channel_stats'] + counted['video_stats']:,} statistics"
            confirm(f"Delete {_title(row)} with {rows}?", yes=yes)
            return row, audited(
                rt,
                f"csi channels remove {row.id}",
                lambda: channel_admin.remove(rt, row),
                lambda counted: f"{sum(counted.values()):,} rows deleted",
            )

        done, failed = _each(names, remove_one)
    if as_json:
        found = [api_models.ChannelRemoved.of(id=row.id, dry_run=dry_run, removed=counted) for row, counted in done]
        echo_json(found[0] if len(names) == 1 else {"channels": found})
    else:
        for row, counted in done:
            words = ", ".join(f"{count:,} rows of {table}" for table, count in counted.items() if count)
            click.echo(f"{_title(row)}: {'would be removed' if dry_run else 'removed'}: {words}")
    sys.exit(SOME_FAILED if failed else 0)


@channels_group.command("priority")
@_CHANNEL
@click.argument("priority", type=PRIORITY)
@config_option
def set_priority(channel: str, priority: int, config_path: Path | None) -> None:
    """Set the priority of a channel's future jobs: 1 to 10, higher runs sooner."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        audited(
            rt,
            f"csi channels priority {row.id}",
            lambda: channel_admin.set_priority(row, priority),
            lambda _: f"priority {priority}",
        )
    click.echo(f"{_title(row)}: priority {priority}")


@channels_group.command()
@_CHANNEL
@click.option("--priority", type=PRIORITY, help="Of this job.  [default: the channel's]")
@click.option("--videos", "cap", type=click.IntRange(min=1), help="Only the newest N videos.  [default: all]")
@config_option
@json_option
def backfill(
    channel: str, priority: int | None, cap: int | None, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Fetch a channel's videos again."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        found = audited(
            rt,
            f"csi channels backfill {row.id}",
            lambda: channel_admin.backfill(rt, row, priority=priority, videos=cap),
            lambda found: f"job {found.job.id}",
        )
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
@LIMIT
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
    names = (
        "captured_at",
        "view_count",
        "like_count",
        "comment_count",
        "hourly_views",
        "hourly_views_hours",
        "daily_views",
    )
    head = ("CAPTURED", "VIEWS", "LIKES", "COMMENTS", "PER HOUR", "OVER HOURS", "PER DAY")
    echo_table(head, [[number(getattr(one, name)) for name in names] for one in found.stats])


@videos_group.command()
@LIMIT
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


channels_group.add_command(catalog_figures.compare)
channels_group.add_command(catalog_figures.import_file)
channels_group.add_command(catalog_figures.export)
videos_group.add_command(catalog_figures.movers)
