"""Reads across channels: which videos and channels gain most, and the usual hourly views of a channel."""

from dataclasses import dataclass
from statistics import median

from csi.store.db import fetch

MOST_SAMPLES = 5_000


@dataclass(frozen=True)
class VideoMover:
    """A video and the gains of its newest capture."""

    id: str
    channel_id: str
    title: str
    published_at: float
    refresh_tier: str
    captured_at: float
    view_count: int | None
    hourly_views: int | None
    daily_views: int


@dataclass(frozen=True)
class ChannelMover:
    """A channel and the gains of its newest day."""

    id: str
    title: str
    captured_on: str
    subscriber_count: int | None
    view_count: int | None
    daily_views: int | None
    daily_subscribers: int | None


def videos(since: float, limit: int) -> list[VideoMover]:
    """Videos that were counted since then, the most views a day first."""
    sql = """SELECT v.id, v.channel_id, v.title, v.published_at, v.refresh_tier, s.captured_at, s.view_count,
            s.hourly_views, s.daily_views
        FROM videos v JOIN video_stats s ON s.video_id = v.id AND s.captured_at = v.last_refreshed_at
        WHERE v.last_refreshed_at >= ? AND v.missing_since IS NULL AND s.daily_views IS NOT NULL
        ORDER BY s.daily_views DESC, v.id LIMIT ?"""
    return [VideoMover(*row) for row in fetch(sql, since, limit)]


def channels(since: float, limit: int) -> list[ChannelMover]:
    """Channels that were counted since then, the most views a day first."""
    sql = """SELECT c.id, c.title, s.captured_on, s.subscriber_count, s.view_count, s.daily_views, s.daily_subscribers
        FROM channels c JOIN channel_stats s ON s.channel_id = c.id AND s.captured_at = (
            SELECT MAX(n.captured_at) FROM channel_stats n WHERE n.channel_id = c.id)
        WHERE s.captured_at >= ? AND (s.daily_views IS NOT NULL OR s.daily_subscribers IS NOT NULL)
        ORDER BY COALESCE(s.daily_views, 0) DESC, c.id LIMIT ?"""
    return [ChannelMover(*row) for row in fetch(sql, since, limit)]


@dataclass(frozen=True)
class UsualViews:
    """The median of the hourly views of a channel's other videos, and how many videos it is taken from."""

    hourly: float
    videos: int


def usual_views(channel_id: str, without: str, since: float) -> UsualViews:
    sql = """SELECT s.video_id, s.hourly_views FROM videos v JOIN video_stats s ON s.video_id = v.id
        WHERE v.channel_id = ? AND v.id <> ? AND s.captured_at >= ? AND s.hourly_views IS NOT NULL
        ORDER BY s.captured_at DESC LIMIT ?"""
    rows = fetch(sql, channel_id, without, since, MOST_SAMPLES)
    return UsualViews(median(row[1] for row in rows) if rows else 0.0, len({row[0] for row in rows}))
