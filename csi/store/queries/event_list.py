"""Reading only: events for people, found by state, source, age or a word in them."""

import json
from dataclasses import dataclass
from typing import Any

from csi.store.db import fetch
from csi.store.models import Event


@dataclass(frozen=True)
class Brief:
    """One line about an event."""

    id: int
    event_id: str
    source: str
    event_type: str
    tier: str
    state: str
    occurred_at: str
    first_seen_at: float
    delivered_at: float | None
    subject_json: str

    @property
    def subject(self) -> dict[str, Any]:
        found = json.loads(self.subject_json)
        return found if isinstance(found, dict) else {}

    @property
    def title(self) -> str:
        return str(self.subject.get("title") or self.event_id)


@dataclass(frozen=True)
class Search:
    """Which events are meant. What is not said does not matter; several conditions all hold."""

    state: str | None = None
    source: str | None = None
    tier: str | None = None
    since: float | None = None
    text: str | None = None
    """A part of its subject, its event_id or its dedupe key, in any case."""


_BRIEF = "id, event_id, source, event_type, tier, state, occurred_at, first_seen_at, delivered_at, subject_json"


def newest(limit: int, search: Search | None = None, *, before: int | None = None) -> list[Brief]:
    """Newest first; `before` is the id of the last of the page before."""
    where, values = _where(search or Search())
    if before is not None:
        where, values = f"{where} AND id < ?", [*values, before]
    sql = f"SELECT {_BRIEF} FROM events WHERE {where} ORDER BY id DESC LIMIT ?"
    return [Brief(*row) for row in fetch(sql, *values, limit)]


def following(after: int, limit: int, search: Search | None = None) -> list[Brief]:
    """Those behind this id, oldest first."""
    where, values = _where(search or Search())
    sql = f"SELECT {_BRIEF} FROM events WHERE {where} AND id > ? ORDER BY id LIMIT ?"
    return [Brief(*row) for row in fetch(sql, *values, after, limit)]


def find(text: str) -> Event | None:
    """By number, event_id or dedupe key; of several with one key, the newest."""
    same = (Event.event_id == text) | (Event.dedupe_key == text)
    if text.isascii() and text.isdigit() and len(text) < 19:
        same |= Event.id == int(text)
    found: Event | None = Event.select().where(same).order_by(Event.id.desc()).first()
    return found


def _where(search: Search) -> tuple[str, list[Any]]:
    equal = {"state": search.state, "source": search.source, "tier": search.tier}
    parts: list[tuple[str, Any]] = [(f"{name} = ?", value) for name, value in equal.items() if value is not None]
    if search.since is not None:
        parts.append(("first_seen_at >= ?", search.since))
    if search.text:
        # Both sides by the database's own rule: SQLite knows A and a as one letter, PostgreSQL also Ü and ü.
        like = search.text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        columns = "subject_json || ' ' || event_id || ' ' || dedupe_key"
        parts.append((f"LOWER({columns}) LIKE LOWER(?) ESCAPE '!'", f"%{like}%"))
    return " AND ".join(["1 = 1", *(sql for sql, _ in parts)]), [value for _, value in parts]
