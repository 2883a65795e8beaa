"""Videos of the catalogue: metadata, whether the API still returns them, and when each is refreshed next."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from csi.store.db import changed, fetch, marks, run

Tier = Literal["hot", "medium", "tail"]


@dataclass(frozen=True)
class VideoFacts:
    """What the API returned for a video. A hidden counter is None, never 0."""

    id: str
    channel_id: str
    title: str
    description: str | None
    published_at: float
    duration: int | None = None
    view_count: int | None = None
    like_count: int | None = None
    comment_count: int | None = None
    thumbnail_url: str | None = None
    category_id: str | None = None
    tags: tuple[str, ...] = ()
    language: str | None = None
    caption_available: bool | None = None
    definition: str | None = None
    privacy_status: str | None = None
    upload_status: str | None = None


@dataclass(frozen=True)
class VideoCounts:
    """The statistics of a video, and its length where the API returned one. A hidden counter is None, never 0."""

    id: str
    view_count: int | None
    like_count: int | None
    comment_count: int | None
    duration: int | None


@dataclass(frozen=True)
class CatalogVideo(VideoFacts):
    """One video, under the names of the specification."""

    first_seen_at: float = 0.0
    last_refreshed_at: float | None = None
    missing_since: float | None = None
    """Since then the API does not return it. The row is never deleted."""
    refresh_tier: Tier = "tail"
    next_refresh_at: float | None = None


@dataclass(frozen=True)
class DueVideo:
    """A video whose statistics are to be refreshed."""

    id: str
    published_at: float
    missing_since: float | None


@dataclass(frozen=True)
class RefreshPlan:
    """When a video is refreshed next; `at` None: never."""

    tier: Tier
    at: float | None


_NAMES = tuple(CatalogVideo.__dataclass_fields__)
COLUMNS = ", ".join(_NAMES)
_STORED = (*_NAMES, "details_at")
_KEPT = ("id", "first_seen_at")
_UPSERT = f"""
    INSERT INTO videos ({", ".join(_STORED)}) VALUES {{rows}}
    ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _STORED if name not in _KEPT)}
"""
_ADD_UNKNOWN = f"INSERT INTO videos ({', '.join(_STORED)}) VALUES {{rows}} ON CONFLICT (id) DO NOTHING"
_STOP_PAUSED = """
    UPDATE videos SET next_refresh_at = NULL WHERE id IN ({ids}) AND channel_id IN (
        SELECT c.id FROM channels c WHERE c.id IN ({channels}) AND c.status = 'paused')
"""


def save(rows: Sequence[tuple[VideoFacts, RefreshPlan]], now: float) -> None:
    """Insert or update videos with what the API returned now. Part of the caller's transaction."""
    _insert(_UPSERT, rows, first_seen_at=now, last_refreshed_at=now, missing_since=None, details_at=now)


def save_counts(rows: Sequence[tuple[VideoCounts, RefreshPlan]], now: float) -> None:
    """Update the statistics of videos; title, tags and the rest stay, and a length that was not returned. Part of the
    caller's transaction."""
    sql = """UPDATE videos SET view_count = ?, like_count = ?, comment_count = ?, duration = COALESCE(?, duration),
        last_refreshed_at = ?, missing_since = NULL, refresh_tier = ?, next_refresh_at = CASE WHEN channel_id IN (
        SELECT c.id FROM channels c WHERE c.status = 'paused') THEN NULL ELSE ? END WHERE id = ?"""
    for counts, plan in rows:
        numbers = (counts.view_count, counts.like_count, counts.comment_count, counts.duration)
        run(sql, *numbers, now, plan.tier, plan.at, counts.id)


def add_unknown(rows: Sequence[tuple[VideoFacts, RefreshPlan]], now: float, *, missing: bool = False) -> int:
    """Insert videos that a feed or an uploads list named; existing rows are not changed. `missing`: the API was asked
    for them and did not return them. Returns how many were new."""
    since = now if missing else None
    return _insert(_ADD_UNKNOWN, rows, first_seen_at=now, last_refreshed_at=None, missing_since=since, details_at=None)


def _insert(statement: str, rows: Sequence[tuple[VideoFacts, RefreshPlan]], **seen: float | None) -> int:
    if not rows:
        return 0
    videos = [
        vars(facts) | seen | {"tags": json.dumps(facts.tags), "refresh_tier": plan.tier, "next_refresh_at": plan.at}
        for facts, plan in rows
    ]
    places = ", ".join([f"({marks(_STORED)})"] * len(videos))
    added = changed(statement.format(rows=places), *(video[name] for video in videos for name in _STORED))
    # A channel may have been paused while a job was running: its videos are not refreshed either.
    ids, owners = [facts.id for facts, _ in rows], sorted({facts.channel_id for facts, _ in rows})
    run(_STOP_PAUSED.format(ids=marks(ids), channels=marks(owners)), *ids, *owners)
    return added


def note_missing(video_id: str, plan: RefreshPlan, now: float) -> bool:
    """The API did not return this video. True: it did so the last time."""
    sql = "UPDATE videos SET missing_since = ? WHERE id = ? AND missing_since IS NULL"
    is_new = bool(changed(sql, now, video_id))
    sql = """UPDATE videos SET refresh_tier = ?, next_refresh_at = CASE WHEN channel_id IN (
        SELECT c.id FROM channels c WHERE c.status = 'paused') THEN NULL ELSE ? END WHERE id = ?"""
    run(sql, plan.tier, plan.at, video_id)
    return is_new


def move_older_to(tier: Tier, older: Tier, before: float) -> int:
    """Move videos published before this time from `tier` to `older`; their due time does not change."""
    sql = "UPDATE videos SET refresh_tier = ? WHERE refresh_tier = ? AND published_at < ?"
    return changed(sql, older, tier, before)


def due(tier: Tier, now: float, limit: int = 50) -> list[DueVideo]:
    """The longest due first."""
    sql = """SELECT id, published_at, missing_since FROM videos WHERE refresh_tier = ? AND next_refresh_at <= ?
        ORDER BY next_refresh_at LIMIT ?"""
    return [DueVideo(*row) for row in fetch(sql, tier, now, limit)]


def without_details(tier: Tier, now: float, read_before: float, limit: int = 50) -> list[DueVideo]:
    """Those of `due` whose title, tags and the like were last read before this time, or never."""
    sql = """SELECT id, published_at, missing_since FROM videos WHERE refresh_tier = ? AND next_refresh_at <= ?
        AND (details_at IS NULL OR details_at < ? OR missing_since IS NOT NULL) ORDER BY next_refresh_at LIMIT ?"""
    return [DueVideo(*row) for row in fetch(sql, tier, now, read_before, limit)]


def by_ids(ids: Sequence[str]) -> list[DueVideo]:
    """These videos, due or not."""
    sql = f"SELECT id, published_at, missing_since FROM videos WHERE id IN ({marks(ids)})"
    return [DueVideo(*row) for row in fetch(sql, *ids)] if ids else []


def in_tier(tier: Tier) -> int:
    """How many videos of this tier are refreshed."""
    sql = "SELECT COUNT(*) FROM videos WHERE refresh_tier = ? AND next_refresh_at IS NOT NULL"
    return int(fetch(sql, tier)[0][0])


def known(ids: Sequence[str]) -> set[str]:
    return {row[0] for row in fetch(f"SELECT id FROM videos WHERE id IN ({marks(ids)})", *ids)} if ids else set()


def published_since(channel_id: str, since: float) -> int:
    sql = "SELECT COUNT(*) FROM videos WHERE channel_id = ? AND published_at > ?"
    return int(fetch(sql, channel_id, since)[0][0])


def stop_refreshing(channel_id: str) -> None:
    """Stop refreshing the videos of this channel."""
    run("UPDATE videos SET next_refresh_at = NULL WHERE channel_id = ?", channel_id)


def refresh_now(channel_id: str, now: float) -> None:
    """Make all videos of a resumed channel due now: the pause may have been long."""
    run("UPDATE videos SET next_refresh_at = ? WHERE channel_id = ? AND next_refresh_at IS NULL", now, channel_id)


def find(video_id: str) -> CatalogVideo | None:
    rows = fetch(f"SELECT {COLUMNS} FROM videos WHERE id = ?", video_id)
    return _video(rows[0]) if rows else None


def of_channel(
    channel_id: str, *, since: float = 0.0, limit: int = 50, before: CatalogVideo | None = None
) -> list[CatalogVideo]:
    """Newest first; `before` is the last video of the previous page. With `since` a week ago: the hot videos."""
    upper, values = ("AND (published_at, id) < (?, ?)", [before.published_at, before.id]) if before else ("", [])
    sql = f"""SELECT {COLUMNS} FROM videos WHERE channel_id = ? AND published_at >= ? {upper}
        ORDER BY published_at DESC, id DESC LIMIT ?"""
    return [_video(row) for row in fetch(sql, channel_id, since, *values, limit)]


def hottest(limit: int = 50) -> list[tuple[CatalogVideo, int | None, int | None]]:
    """Videos of the hot tier with the views of their last hour and day, the most viewed first."""
    names = ", ".join(f"v.{name}" for name in _NAMES)
    sql = f"""SELECT {names}, s.hourly_views, s.daily_views FROM videos v LEFT JOIN video_stats s
        ON s.video_id = v.id AND s.captured_at = v.last_refreshed_at
        WHERE v.refresh_tier = 'hot' AND v.missing_since IS NULL
        ORDER BY COALESCE(s.hourly_views, -1) DESC, v.published_at DESC LIMIT ?"""
    return [(_video(row[:-2]), row[-2], row[-1]) for row in fetch(sql, limit)]


def count_of(channel_id: str) -> tuple[int, int]:
    """How many videos are known, and how many of them are missing now."""
    sql = "SELECT COUNT(*), COUNT(missing_since) FROM videos WHERE channel_id = ?"
    total, missing = fetch(sql, channel_id)[0]
    return int(total), int(missing)


def _video(row: tuple[Any, ...]) -> CatalogVideo:
    values = dict(zip(_NAMES, row, strict=True))
    captions = values["caption_available"]  # SQLite stores booleans as integers
    values["caption_available"] = None if captions is None else bool(captions)
    return CatalogVideo(**values | {"tags": tuple(json.loads(values["tags"]))})
