"""`csi videos`: what is known of videos, and which of them are hot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi.catalog import channel_admin, json_shapes
from csi.cli.config import config_option, json_option
from csi.cli.installation import installed
from csi.cli.output import echo_json
from csi.cli.terminal import ago, plain, table
from csi.store.catalog import stats
from csi.store.catalog import videos as store

if TYPE_CHECKING:
    from csi.store.catalog.videos import Video

_LIMIT = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")


@click.group()
def videos() -> None:
    """Look at the videos of tracked channels."""


@videos.command("list")
@click.argument("channel", metavar="CHANNEL")
@click.option("--days", type=click.IntRange(min=1), help="Only those published in the last so many days.")
@_LIMIT
@config_option
@json_option
def list_videos(channel: str, days: int | None, limit: int, config_path: Path | None, as_json: bool) -> None:
    """Show a channel's videos, the newest first."""
    with installed(config_path) as rt:
        now, row = rt.now(), channel_admin.find_channel(rt, channel)
        rows = store.of_channel(row.id, since=now - days * 86_400 if days else 0.0, limit=limit)
    if as_json:
        echo_json({"channel_id": row.id, "videos": [json_shapes.shape(video) for video in rows]})
        return
    head = ("ID", "AGE", "TIER", "VIEWS", "LIKES", "COMMENTS", "THERE", "TITLE")
    for line in table(head, [_row(video, now) for video in rows]):
        click.echo(line)


@videos.command()
@click.argument("video", metavar="VIDEO")
@config_option
@json_option
def show(video: str, config_path: Path | None, as_json: bool) -> None:
    """Show all that is known of a video, and its last 24 captures."""
    with installed(config_path):
        row, captures = store.find(video), stats.recent(video, 24)
    if row is None:
        raise channel_admin.CatalogRefused(
            f"video {video[:40]!r} is not in the catalogue; VIDEO is the id behind watch?v="
        )
    if as_json:
        echo_json(json_shapes.shape(row) | {"stats": [json_shapes.shape(one) for one in captures]})
        return
    for name, value in json_shapes.shape(row).items():
        click.echo(f"{name:<18} {'–' if value is None else plain(value, 100)}")
    head = ("CAPTURED", "VIEWS", "LIKES", "COMMENTS", "LAST HOUR", "LAST DAY")
    names = ("captured_at", "view_count", "like_count", "comment_count", "hourly_views", "daily_views")
    for line in table(head, [[_cell(json_shapes.shape(one)[name]) for name in names] for one in captures]):
        click.echo(line)


@videos.command()
@_LIMIT
@config_option
@json_option
def hot(limit: int, config_path: Path | None, as_json: bool) -> None:
    """Show videos up to 7 days old, the most viewed in the last hour first."""
    with installed(config_path) as rt:
        now, rows = rt.now(), store.hottest(limit)
    if as_json:
        echo_json(
            {"videos": [json_shapes.shape(row) | {"hourly_views": hour, "daily_views": day} for row, hour, day in rows]}
        )
        return
    head = ("ID", "CHANNEL", "AGE", "VIEWS", "LAST HOUR", "LAST DAY", "TITLE")
    cells = [
        [row.id, row.channel_id, ago(now - row.published_at), *map(_cell, (row.view_count, hour, day)), row.title]
        for row, hour, day in rows
    ]
    for line in table(head, cells):
        click.echo(line)


def _row(video: Video, now: float) -> list[str]:
    numbers = [_cell(value) for value in (video.view_count, video.like_count, video.comment_count)]
    there = "yes" if video.missing_since is None else f"missing for {ago(now - video.missing_since)}"
    return [video.id, ago(now - video.published_at), video.refresh_tier, *numbers, there, video.title]


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
