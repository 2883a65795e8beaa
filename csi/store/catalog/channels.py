"""Channels of the catalogue: metadata, status, and when each is refreshed next."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from csi.store.db import changed, column, fetch, marks, run

ChannelStatus = Literal["active", "paused", "deleted", "error"]


@dataclass(frozen=True)
class ChannelFacts:
    """What the API returned for a channel. A hidden counter is None, never 0."""

    id: str
    title: str
    description: str | None
    custom_url: str | None
    subscriber_count: int | None
    video_count: int | None
    view_count: int | None
    thumbnail_url: str | None
    uploads_playlist_id: str | None
    country: str | None
    created_at: float | None


@dataclass(frozen=True)
class Channel(ChannelFacts):
    """A channel being monitored, under the names of the specification."""

    tracked_since: float
    last_refreshed_at: float | None
    status: ChannelStatus
    priority: int
    next_refresh_at: float | None
    """When its statistics are due; None: never (paused)."""
    missing_since: float | None
    backfilled_at: float | None


@dataclass(frozen=True)
class ChannelFeed:
    """The polling of a channel's feed: the ingester's watch under the names of the specification."""

    channel_id: str
    feed_url: str | None
    last_etag: str | None
    last_modified: str | None
    last_polled_at: float | None
    last_video_published_at: float | None
    poll_interval_minutes: float
    consecutive_errors: int
    status: str
    watch_id: int


COLUMNS = ", ".join(Channel.__dataclass_fields__)
_FACTS = tuple(name for name in ChannelFacts.__dataclass_fields__ if name != "id")
# A deleted or failing channel that the API returns again is active; a paused one stays paused.
_SAVE = f"""
    UPDATE channels SET {", ".join(f"{name} = ?" for name in _FACTS)}, last_refreshed_at = ?, missing_since = NULL,
        status = CASE WHEN status IN ('paused', 'error') THEN status ELSE 'active' END,
        next_refresh_at = CASE WHEN status = 'paused' THEN NULL ELSE ? END
    WHERE id = ?
"""


def add(channel_id: str, title: str, priority: int, now: float) -> bool:
    """False: the channel is in the catalogue already."""
    sql = """INSERT INTO channels (id, title, priority, tracked_since, next_refresh_at) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (id) DO NOTHING"""
    return bool(changed(sql, channel_id, title, priority, now, now))


def find(channel_id: str) -> Channel | None:
    rows = fetch(f"SELECT {COLUMNS} FROM channels WHERE id = ?", channel_id)
    return Channel(*rows[0]) if rows else None


def matching(text: str) -> list[Channel]:
    """By id, title or handle. The API returns handles in lower case; in older responses they lack the @."""
    handle = text.lower().removeprefix("@")
    sql = f"SELECT {COLUMNS} FROM channels WHERE id = ? OR title = ? OR LOWER(custom_url) IN (?, ?) ORDER BY id"
    return [Channel(*row) for row in fetch(sql, text, text, handle, f"@{handle}")]


def titles(ids: Collection[str]) -> dict[str, str]:
    """By id, of channels that have a title."""
    rows = fetch(f"SELECT id, title FROM channels WHERE id IN ({marks([*ids])})", *ids) if ids else []
    return {channel_id: title for channel_id, title in rows if title}


def known(ids: list[str]) -> set[str]:
    return {row[0] for row in fetch(f"SELECT id FROM channels WHERE id IN ({marks(ids)})", *ids)} if ids else set()


def tracked_among(channel_ids: Collection[str]) -> set[str]:
    """Those of these channels that are tracked and not paused."""
    sql = f"SELECT id FROM channels WHERE id IN ({marks(list(channel_ids))}) AND status <> 'paused'"
    return set(column(sql, *channel_ids)) if channel_ids else set()


def save(facts: ChannelFacts, next_refresh_at: float, now: float) -> bool:
    """Store what the API returned now. Part of the caller's transaction. False: not in the catalogue."""
    values = [getattr(facts, name) for name in _FACTS]
    return bool(changed(_SAVE, *values, now, next_refresh_at, facts.id))


def due(now: float, limit: int = 50) -> list[str]:
    sql = "SELECT id FROM channels WHERE next_refresh_at <= ? ORDER BY next_refresh_at, id LIMIT ?"
    return [row[0] for row in fetch(sql, now, limit)]


def refreshed_count() -> int:
    """How many channels are refreshed, that is, not paused."""
    return int(fetch("SELECT COUNT(*) FROM channels WHERE next_refresh_at IS NOT NULL")[0][0])


def note_missing(channel_id: str, gone_before: float, next_refresh_at: float, now: float) -> bool:
    """The API did not return this channel. Twice, a day apart, means `deleted`; its rows are kept. True: it is
    `deleted` from now on."""
    sql = """UPDATE channels SET missing_since = COALESCE(missing_since, ?),
        next_refresh_at = CASE WHEN status = 'paused' THEN NULL ELSE ? END WHERE id = ?"""
    run(sql, now, next_refresh_at, channel_id)
    sql = "UPDATE channels SET status = 'deleted' WHERE id = ? AND missing_since <= ? AND status IN ('active', 'error')"
    return bool(changed(sql, channel_id, gone_before))


def note_error(channel_id: str) -> bool:
    """A job of this channel was given up. False: it was not active."""
    return bool(changed("UPDATE channels SET status = 'error' WHERE id = ? AND status = 'active'", channel_id))


def clear_errors() -> int:
    """`error` ends when no job of the channel is open or given up any more."""
    return changed("""UPDATE channels SET status = 'active' WHERE status = 'error' AND NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.channel_id = channels.id AND (j.status IN ('pending', 'running', 'failed')
            OR (j.status = 'dead' AND j.archived_at IS NULL AND j.error_message <> 'cancelled')))""")


def without_backfill(limit: int = 50) -> list[str]:
    """Channels whose videos were never read, and for which no backfill is open or given up."""
    sql = """SELECT id FROM channels WHERE backfilled_at IS NULL AND status IN ('active', 'error') AND NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.channel_id = channels.id AND j.type = 'BACKFILL_CHANNEL'
            AND j.status <> 'completed' AND j.archived_at IS NULL) ORDER BY priority DESC, id LIMIT ?"""
    return [row[0] for row in fetch(sql, limit)]


def note_backfilled(channel_id: str, now: float) -> None:
    run("UPDATE channels SET backfilled_at = ? WHERE id = ?", now, channel_id)


def pause(channel_id: str) -> bool:
    """False: the channel is paused already."""
    sql = "UPDATE channels SET status = 'paused', next_refresh_at = NULL WHERE id = ? AND status <> 'paused'"
    return bool(changed(sql, channel_id))


def resume(channel_id: str, now: float) -> bool:
    sql = "UPDATE channels SET status = 'active', next_refresh_at = ? WHERE id = ? AND status = 'paused'"
    return bool(changed(sql, now, channel_id))


def set_priority(channel_id: str, priority: int) -> bool:
    return bool(changed("UPDATE channels SET priority = ? WHERE id = ?", priority, channel_id))


def feed_of(channel_id: str) -> ChannelFeed | None:
    names = ", ".join(ChannelFeed.__dataclass_fields__)
    rows = fetch(f"SELECT {names} FROM channel_feeds WHERE channel_id = ?", channel_id)
    return ChannelFeed(*rows[0]) if rows else None


def dashboard(today: str) -> list[dict[str, Any]]:
    """Every channel with its statistics of this day; None where there are none."""
    ours = [f"c.{name}" for name in Channel.__dataclass_fields__]
    stats = ["captured_at", "daily_views", "daily_subscribers", "daily_videos"]
    sql = f"""SELECT {", ".join([*ours, *(f"s.{name}" for name in stats)])} FROM channels c
        LEFT JOIN channel_stats s ON s.channel_id = c.id AND s.captured_on = ?
        ORDER BY c.priority DESC, c.title, c.id"""
    return [dict(zip([*Channel.__dataclass_fields__, *stats], row, strict=True)) for row in fetch(sql, today)]
