"""Watches and tracked channels as one list: a row for each watch, and one for each channel that is tracked without one.
Reads only."""

from typing import NamedTuple

from csi.store.db import fetch, fetch_all


class WatchRow(NamedTuple):
    """One line of the list. Fields are in the order that `every` selects. A tuple, because the list reads all of them:
    50,000 frozen dataclasses would take half a second."""

    id: int
    """0: a tracked channel that is not watched."""
    source: str
    ref: str
    name: str | None
    origin: str
    state: str
    health: str
    health_since: float | None = None
    errors: int = 0
    error_kind: str | None = None
    last_error: str | None = None
    note: str | None = None
    filters_json: str = "{}"
    tags_json: str = "[]"
    interval: float = 0.0
    first_read_at: float | None = None
    last_success_at: float | None = None
    last_new_at: float | None = None
    last_video_published_at: float | None = None
    usual_gap: float | None = None
    next_poll_at: float | None = None
    icon_url: str | None = None
    channel_id: str | None = None
    """The channel of the catalogue, if its statistics were ever tracked."""
    tracking: str | None = None
    """The status of that channel: active, paused, deleted, error."""
    subscribers: int | None = None


_OWN = WatchRow._fields[:-3]
_SELECT = ", ".join(
    "COALESCE(w.planned_interval, w.interval_seconds)" if one == "interval" else f"w.{one}" for one in _OWN
)


def every(channel_source: str) -> list[WatchRow]:
    """Of watches that are not removed, and of channels without a watch. `channel_source`: watches of channels."""
    sql = f"""SELECT {_SELECT}, c.id, c.status, c.subscriber_count FROM watches w
        LEFT JOIN channels c ON c.id = w.ref AND w.source = ? WHERE w.state <> 'removed' ORDER BY w.source, w.id"""
    rows = fetch_all(WatchRow, sql, channel_source)
    watched = {row.channel_id for row in rows if row.channel_id}
    lone = fetch("SELECT id, title, status, subscriber_count FROM channels ORDER BY title, id")
    for channel_id, title, status, subscribers in lone:
        if channel_id not in watched:
            unwatched = WatchRow(
                id=0, source=channel_source, ref=channel_id, name=title or None, origin="catalogue", state="unwatched",
                health="healthy", channel_id=channel_id, tracking=status, subscribers=subscribers,
            )  # fmt: skip
            rows.append(unwatched)
    return rows
