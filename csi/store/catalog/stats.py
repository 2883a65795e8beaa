"""Statistics of channels and videos over time, and the earlier captures that gains are computed from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.store.catalog import partitions
from csi.store.db import changed, fetch, marks, run
from csi.store.uuid7 import new_id


@dataclass(frozen=True)
class ChannelStats:
    """A channel's counters on one day (UTC). The gains are None where there is no earlier capture."""

    id: str
    channel_id: str
    captured_at: float
    captured_on: str
    subscriber_count: int | None
    video_count: int | None
    view_count: int | None
    daily_views: int | None
    daily_subscribers: int | None
    daily_videos: int | None


@dataclass(frozen=True)
class VideoStats:
    """A video's counters at one moment."""

    id: str
    video_id: str
    captured_at: float
    view_count: int | None
    like_count: int | None
    comment_count: int | None
    hourly_views: int | None
    daily_views: int | None
    hourly_views_hours: float | None = None
    """Over how many hours `hourly_views` was averaged."""


@dataclass(frozen=True)
class CountSample:
    """A counter's value and when it was captured."""

    at: float
    value: int | None


_CHANNEL = tuple(ChannelStats.__dataclass_fields__)
_VIDEO = tuple(VideoStats.__dataclass_fields__)


def day_of(moment: float) -> str:
    """`2026-02-22`, by UTC."""
    return clock.iso(moment)[:10]


def save_channel(found: ChannelStats) -> None:
    """One row for a channel and day: a second capture of the day replaces the first. Part of a transaction."""
    partitions.ensure_partition("channel_stats", found.captured_at)
    fresh = ", ".join(f"{name} = excluded.{name}" for name in _CHANNEL if name not in ("id", "channel_id"))
    sql = f"""INSERT INTO channel_stats ({", ".join(_CHANNEL)}) VALUES ({marks(_CHANNEL)})
        ON CONFLICT (channel_id, captured_on) DO UPDATE SET {fresh}"""
    run(sql, *(getattr(found, name) for name in _CHANNEL))


def save_videos(found: Sequence[VideoStats]) -> None:
    """A second capture at the same moment replaces the first. Part of a transaction."""
    if not found:
        return
    partitions.ensure_partition("video_stats", found[0].captured_at)
    fresh = ", ".join(f"{name} = excluded.{name}" for name in _VIDEO[3:])
    rows = ", ".join([f"({marks(_VIDEO)})"] * len(found))
    sql = f"""INSERT INTO video_stats ({", ".join(_VIDEO)}) VALUES {rows}
        ON CONFLICT (video_id, captured_at) DO UPDATE SET {fresh}"""
    run(sql, *(getattr(one, name) for one in found for name in _VIDEO))


def channel_baseline(channel_id: str, earliest: float, latest: float) -> ChannelStats | None:
    """The newest capture between these times."""
    sql = f"""SELECT {", ".join(_CHANNEL)} FROM channel_stats
        WHERE channel_id = ? AND captured_at BETWEEN ? AND ? ORDER BY captured_at DESC LIMIT 1"""
    rows = fetch(sql, channel_id, earliest, latest)
    return ChannelStats(*rows[0]) if rows else None


def view_baselines(ids: Sequence[str], earliest: float, latest: float) -> dict[str, CountSample]:
    """For each of these videos, the newest capture between these times, by one index lookup each."""
    if not ids:
        return {}
    sql = f"""SELECT s.video_id, s.captured_at, s.view_count FROM videos v JOIN video_stats s
        ON s.video_id = v.id AND s.captured_at = (SELECT MAX(b.captured_at) FROM video_stats b
            WHERE b.video_id = v.id AND b.captured_at BETWEEN ? AND ?)
        WHERE v.id IN ({marks(ids)})"""
    return {video: CountSample(at, value) for video, at, value in fetch(sql, earliest, latest, *ids)}


def recent(video_id: str, limit: int = 24) -> list[VideoStats]:
    """The newest first."""
    sql = f"SELECT {', '.join(_VIDEO)} FROM video_stats WHERE video_id = ? ORDER BY captured_at DESC LIMIT ?"
    return [VideoStats(*row) for row in fetch(sql, video_id, limit)]


def since(video_id: str, earliest: float, limit: int = 5_000) -> list[VideoStats]:
    """The captures of a video, the oldest first."""
    sql = f"""SELECT {", ".join(_VIDEO)} FROM video_stats WHERE video_id = ? AND captured_at >= ?
        ORDER BY captured_at LIMIT ?"""
    return [VideoStats(*row) for row in fetch(sql, video_id, earliest, limit)]


def trend(channel_id: str, since: float) -> list[ChannelStats]:
    """Day by day, the oldest first."""
    sql = f"""SELECT {", ".join(_CHANNEL)} FROM channel_stats WHERE channel_id = ? AND captured_at >= ?
        ORDER BY captured_at"""
    return [ChannelStats(*row) for row in fetch(sql, channel_id, since)]


def make_channel_stats(channel_id: str, now: float, **numbers: Any) -> ChannelStats:
    return ChannelStats(id=new_id(now), channel_id=channel_id, captured_at=now, captured_on=day_of(now), **numbers)


def forget_counters(before: float) -> int:
    """Set counters to NULL that were not refreshed since then (youtube_policy: strict)."""
    old = "last_refreshed_at < ? AND view_count IS NOT NULL"
    videos = f"UPDATE videos SET view_count = NULL, like_count = NULL, comment_count = NULL WHERE {old}"
    channels = f"UPDATE channels SET view_count = NULL, subscriber_count = NULL, video_count = NULL WHERE {old}"
    return changed(videos, before) + changed(channels, before)
