"""`csi channels`: which channels are tracked, and how they do."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import logs
from csi.catalog import channel_admin, data_api, json_shapes, listing
from csi.cli.config import config_option, json_option
from csi.cli.installation import installed
from csi.cli.output import echo_json, plural
from csi.cli.terminal import ago, plain, table
from csi.store.catalog import channels as store
from csi.store.catalog import stats

if TYPE_CHECKING:
    from csi.store.catalog.channels import Channel

_CHANNEL = click.argument("channel", metavar="CHANNEL")
_PRIORITY = click.IntRange(1, 10)


@click.group()
def channels() -> None:
    """Track channels: their videos, and their numbers over time.

    CHANNEL is an id (UC…), a title, an @handle or a URL of a channel that is tracked.
    """


@channels.command()
@click.argument("what", metavar="ID|URL|@HANDLE")
@click.option("--priority", type=_PRIORITY, default=5, show_default=True, help="Of its jobs; higher is sooner.")
@click.option("--videos", "cap", type=click.IntRange(min=1), help="Fetch only the newest so many.  [default: all]")
@click.option("--no-watch", is_flag=True, help="Do not read its feed: new uploads are found once a day.")
@config_option
@json_option
def add(
    what: str, priority: int, cap: int | None, no_watch: bool, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Track a channel: fetch what it published, then refresh its numbers. Needs an API key; costs a unit to look."""
    with installed(config_path) as rt:
        added = channel_admin.register(rt, what, priority=priority, watch=not no_watch, videos=cap)
    if as_json:
        echo_json(
            {
                "result": added.result,
                "channel": json_shapes.shape(added.channel),
                "job": added.job.id if added.job else None,
                "watch": logs.redact(added.watch),
                "remark": added.remark and logs.redact(added.remark),
            }
        )
        return
    if added.result == "known":
        click.echo(f"{_title(added.channel)}: {added.remark}")
        return
    click.echo(f"tracking {_title(added.channel)}")
    click.echo(f"  job {added.job.id if added.job else '–'} fetches what it published")
    click.echo(f"  its feed: {plain(logs.redact(added.watch))}")
    if added.remark:
        click.echo(f"  {plain(logs.redact(added.remark))}")


@channels.command("list")
@click.option("--status", type=click.Choice(["active", "paused", "deleted", "error"]), help="Only these.")
@config_option
@json_option
def list_channels(status: str | None, config_path: Path | None, as_json: bool) -> None:
    """Show every channel with its numbers of today."""
    with installed(config_path) as rt:
        if as_json:
            echo_json(listing.all_channels(rt, status))
            return
        now, share = rt.now(), data_api.share_of(rt)
        rows = [row for row in store.dashboard(stats.day_of(now)) if status in (None, row["status"])]
    head = ("ID", "TITLE", "STATUS", "PRIO", "SUBSCRIBERS", "TODAY", "VIEWS", "TODAY", "VIDEOS", "REFRESHED")
    for line in table(head, [_row(row, now) for row in rows]):
        click.echo(line)
    enough = f": {data_api.TOO_MUCH}" if share.is_short else ""
    cost = f"keeping them fresh takes {share.needed:,} of {share.limit:,} API units a day{enough}"
    click.echo(f"{plural(len(rows), 'channel')}; {cost}", err=True)


@channels.command()
@_CHANNEL
@config_option
@json_option
def show(channel: str, config_path: Path | None, as_json: bool) -> None:
    """Show all that is known of a channel, its feed and its jobs."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        told = listing.one_channel(rt, row)
    if as_json:
        echo_json(told)
        return
    for name, value in json_shapes.shape(row).items():
        click.echo(f"{name:<20} {'–' if value is None else plain(value, 100)}")
    counted = f"{told['known_videos']:,}, of which {told['missing_videos']:,} are missing at YouTube"
    click.echo(f"{'videos known':<20} {counted}")
    click.echo(f"{'feed':<20} {_feed_words(told['feed'])}")
    for job in told["jobs"]:
        click.echo(f"{'job':<20} {job['id']}  {job['type']}  {job['status']}  {plain(job['error_message'] or '')}")


@channels.command()
@_CHANNEL
@config_option
def pause(channel: str, config_path: Path | None) -> None:
    """Let a channel and its feed rest; jobs in flight finish."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        done = channel_admin.pause(rt, row)
    click.echo(f"{_title(row)}: {'paused, with its feed' if done else 'is paused; nothing changed'}")


@channels.command()
@_CHANNEL
@config_option
def resume(channel: str, config_path: Path | None) -> None:
    """Go on with a channel: its feed is read, and what it published meanwhile is fetched."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        job = channel_admin.resume(rt, row)
    caught = f"resumed; job {job.id} catches up" if job else f"is {row.status}; nothing changed"
    click.echo(f"{_title(row)}: {caught}")


@channels.command()
@_CHANNEL
@click.argument("priority", type=_PRIORITY)
@config_option
def priority(channel: str, priority: int, config_path: Path | None) -> None:
    """Set how urgent a channel's jobs are from now on: 1 to 10, higher is sooner."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        channel_admin.set_priority(row, priority)
    click.echo(f"{_title(row)}: priority {priority}")


@channels.command()
@_CHANNEL
@click.option("--priority", type=_PRIORITY, help="Of this job.  [default: the channel's]")
@click.option("--videos", "cap", type=click.IntRange(min=1), help="Only the newest so many.  [default: all]")
@config_option
@json_option
def backfill(
    channel: str, priority: int | None, cap: int | None, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Fetch once more what a channel published."""
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        found = channel_admin.backfill(rt, row, priority=priority, videos=cap)
    if as_json:
        echo_json({"job": json_shapes.shape(found.job), "duplicate": found.is_duplicate})
        return
    word = "is under way already, as job" if found.is_duplicate else "is enqueued as job"
    click.echo(f"the backfill of {_title(row)} {word} {found.job.id}")


@channels.command()
@_CHANNEL
@click.option("--days", type=click.IntRange(1, 36_500), default=90, show_default=True, help="How far back.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@config_option
@json_option
def trend(channel: str, days: int, as_csv: bool, config_path: Path | None, as_json: bool) -> None:
    """Show a channel's numbers day by day; a gain that is not known is empty."""
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    with installed(config_path) as rt:
        row = channel_admin.find_channel(rt, channel)
        rows = stats.trend(row.id, rt.now() - days * listing.DAY)
    if as_json:
        echo_json({"channel_id": row.id, "days": [listing.trend_day(one) for one in rows]})
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, fieldnames=listing.TREND, lineterminator="\n")
        writer.writeheader()
        writer.writerows(listing.trend_day(one) for one in rows)
    else:
        lines = [
            ["–" if value is None else _number(value) for value in listing.trend_day(one).values()] for one in rows
        ]
        for line in table([name.upper() for name in listing.TREND], lines):
            click.echo(line)


def _feed_words(feed: dict[str, Any] | None) -> str:
    return "not watched" if feed is None else f"{feed['status']}, read {feed['last_polled_at'] or '–'}"


def _row(row: dict[str, Any], now: float) -> list[str]:
    last = row["last_refreshed_at"]
    numbers = ("subscriber_count", "daily_subscribers", "view_count", "daily_views", "video_count")
    shown = ["–" if row[name] is None else _number(row[name]) for name in numbers]
    refreshed = ago(None if last is None else now - last)
    return [row["id"], row["title"], row["status"], str(row["priority"]), *shown, refreshed]


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _title(row: Channel) -> str:
    return f"{plain(row.title or row.id, 60)} ({row.id})"
