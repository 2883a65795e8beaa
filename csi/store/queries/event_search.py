"""Events by text, state, source, tier, watch and time: the one search over all stored events. Reads only."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from csi.store.db import column, fetch, fetch_all, fetch_one, is_postgres, marks

_SELECT = (
    "SELECT e.id, e.event_id, e.dedupe_key, e.source, e.event_type, e.occurred_at, e.subject_json, e.state, e.tier, "
    "e.first_seen_at, e.delivered_at, w.name, w.ref, e.watch_id, e.removed_at FROM events e "
    "LEFT JOIN watches w ON w.id = e.watch_id"
)


@dataclass(frozen=True)
class EventRow:
    """One event in a list, with the watch that saw it."""

    id: int
    event_id: str
    dedupe_key: str
    source: str
    event_type: str
    occurred_at: str
    subject_json: str
    state: str
    tier: str
    first_seen_at: float
    delivered_at: float | None
    watch_name: str | None
    watch_ref: str | None
    watch_id: int | None = None
    removed_at: float | None = None
    """Since when its video is deleted or private, if a hub announced it."""

    @property
    def subject(self) -> dict[str, Any]:
        found = json.loads(self.subject_json)
        return found if isinstance(found, dict) else {}

    @property
    def title(self) -> str:
        text = self.subject.get("title")
        return text if isinstance(text, str) else ""


@dataclass(frozen=True)
class EventQuery:
    """Which events are meant. None matches everything; several conditions all hold."""

    text: str | None = None
    """A part of the subject, the event_id or the dedupe key, in any case."""
    state: str | None = None
    source: str | None = None
    tier: str | None = None
    watch_id: int | None = None
    sources: Sequence[str] = ()
    """Of one of these; empty: of any. So for the next two."""
    event_types: Sequence[str] = ()
    tags: Sequence[str] = ()
    since: float | None = None
    """First seen at this time or later."""
    until: float | None = None
    """First seen before this time."""


@dataclass(frozen=True)
class EventPage:
    """Events, newest first. `next_before` None: there are no older ones."""

    events: tuple[EventRow, ...]
    next_before: int | None


def page(query: EventQuery, limit: int, before: int | None = None) -> EventPage:
    found = newest(query, limit + 1, before)
    shown = tuple(found[:limit])
    return EventPage(shown, shown[-1].id if len(found) > limit else None)


def newest(query: EventQuery, limit: int, before: int | None = None) -> list[EventRow]:
    """Newest first; `before` is the id of the last event of the previous page."""
    where, values = _where(query)
    if before is not None:
        where, values = f"{where} AND e.id < ?", [*values, before]
    return fetch_all(EventRow, f"{_SELECT} WHERE {where} ORDER BY e.id DESC LIMIT ?", *values, limit)


def ids(query: EventQuery) -> list[int]:
    """All of them, oldest first."""
    where, values = _where(query)
    return column(f"SELECT e.id FROM events e WHERE {where} ORDER BY e.id", *values)


def following(query: EventQuery, limit: int, after: int) -> list[EventRow]:
    """Those after this id, oldest first."""
    where, values = _where(query)
    return fetch_all(EventRow, f"{_SELECT} WHERE {where} AND e.id > ? ORDER BY e.id LIMIT ?", *values, after, limit)


def find(text: str) -> EventRow | None:
    """By number, event_id or dedupe key; of several events with one key, the newest."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    sql = f"{_SELECT} WHERE e.event_id = ? OR e.dedupe_key = ? OR e.id = ? ORDER BY e.id DESC LIMIT 1"
    return fetch_one(EventRow, sql, text, text, number)


def watch_ids(event_ids: Sequence[str]) -> dict[str, int]:
    """By event id: the watch that saw the event. Without events that are gone."""
    if not event_ids:
        return {}
    sql = f"SELECT event_id, watch_id FROM events WHERE watch_id IS NOT NULL AND event_id IN ({marks(event_ids)})"
    return dict(fetch(sql, *event_ids))


def _where(query: EventQuery) -> tuple[str, list[Any]]:
    equal = {name: getattr(query, name) for name in ("state", "source", "tier", "watch_id")}
    parts: list[tuple[str, Any]] = [(f"e.{name} = ?", value) for name, value in equal.items() if value is not None]
    if query.since is not None:
        parts.append(("e.first_seen_at >= ?", query.since))
    if query.until is not None:
        parts.append(("e.first_seen_at < ?", query.until))
    lists = [("e.source", query.sources), ("e.event_type", query.event_types)]
    parts += [(f"{name} IN ({marks(words)})", words) for name, words in lists if words]
    if query.tags:
        # The tags of an event as rows with a column `value`
        if not is_postgres():
            tags = "e.routing_json, '$.tags'"
            tags_table = f"json_each(CASE json_type({tags}) WHEN 'array' THEN json_extract({tags}) ELSE '[]' END)"
        else:
            tags = "e.routing_json::jsonb -> 'tags'"
            tags_table = (
                f"jsonb_array_elements_text(CASE jsonb_typeof({tags}) WHEN 'array' THEN {tags} ELSE '[]' END) t(value)"
            )
        parts.append((f"EXISTS (SELECT 1 FROM {tags_table} WHERE value IN ({marks(query.tags)}))", query.tags))
    if query.text:
        # Both sides by the database's own rule: SQLite knows A and a as one letter, PostgreSQL also Ü and ü.
        like = query.text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        columns = "e.subject_json || ' ' || e.event_id || ' ' || e.dedupe_key"
        parts.append((f"LOWER({columns}) LIKE LOWER(?) ESCAPE '!'", f"%{like}%"))
    values = [one for _, value in parts for one in (value if isinstance(value, tuple) else (value,))]
    return " AND ".join(["1 = 1", *(sql for sql, _ in parts)]), values
