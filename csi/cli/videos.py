"""`csi videos`: show the videos of tracked channels."""

from __future__ import annotations

from pathlib import Path

import click

from csi import api_models
from csi.catalog import channel_admin
from csi.cli.command import config_option, installed, json_option
from csi.cli.output import ago, echo_fields, echo_json, echo_table, number
from csi.store.catalog import stats, videos

_LIMIT = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")


@click.group("videos")
def videos_group() -> None:
    """Show the videos of tracked channels."""


@videos_group.command("list")
@click.argument("channel", metavar="CHANNEL")
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


@videos_group.command()
@click.argument("video", metavar="VIDEO")
@config_option
@json_option
def show(video: str, config_path: Path | None, as_json: bool) -> None:
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
        echo_json(
            {"videos": [api_models.HotVideo.of(row, hourly_views=hour, daily_views=day) for row, hour, day in rows]}
        )
        return
    cells = [
        [row.id, row.channel_id, ago(now - row.published_at), *map(number, (row.view_count, hour, day)), row.title]
        for row, hour, day in rows
    ]
    echo_table(("ID", "CHANNEL", "AGE", "VIEWS", "LAST HOUR", "LAST DAY", "TITLE"), cells)
