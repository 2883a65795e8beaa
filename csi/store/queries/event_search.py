"""Events as a person looks for them: by words, state, source, tier and time; newest first, page by page."""

from dataclasses import dataclass
from typing import Any

from csi.store.db import fetch

SEARCHED = 50_000
"""Words are looked for in so many of the newest events; ids are found among all."""

_COLUMNS = (
    "e.id, e.event_id, e.dedupe_key, e.source, e.event_type, e.occurred_at, e.subject_json, e.state, e.tier, "
    "e.first_seen_at, e.delivered_at, w.name, w.ref"
)


@dataclass(frozen=True)
class Listed:
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


@dataclass(frozen=True)
class Wanted:
    """What is not said does not matter; several conditions all hold."""

    words: str = ""
    state: str | None = None
    source: str | None = None
    tier: str | None = None
    watch_id: int | None = None
    since: float | None = None
    before: int | None = None


def page(wanted: Wanted, limit: int) -> list[Listed]:
    where, values = _where(wanted)
    sql = f"SELECT {_COLUMNS} FROM events e LEFT JOIN watches w ON w.id = e.watch_id WHERE {where}"
    return [Listed(*row) for row in fetch(f"{sql} ORDER BY e.id DESC LIMIT ?", *values, limit)]


def find(event_pk: int) -> Listed | None:
    sql = f"SELECT {_COLUMNS} FROM events e LEFT JOIN watches w ON w.id = e.watch_id WHERE e.id = ?"
    found = fetch(sql, event_pk)
    return Listed(*found[0]) if found else None


def find_id(event_id: str) -> int | None:
    found = fetch("SELECT id FROM events WHERE event_id = ?", event_id)
    return int(found[0][0]) if found else None


def _where(wanted: Wanted) -> tuple[str, list[Any]]:
    conditions: list[tuple[str, list[Any]]] = [("1 = 1", [])]
    for column in ("state", "source", "tier", "watch_id"):
        if (value := getattr(wanted, column)) is not None:
            conditions.append((f"e.{column} = ?", [value]))
    if wanted.since is not None:
        conditions.append(("e.first_seen_at >= ?", [wanted.since]))
    if wanted.before is not None:
        conditions.append(("e.id < ?", [wanted.before]))
    if wanted.words:
        conditions.append(_mentions(wanted.words))
    return " AND ".join(text for text, _ in conditions), [value for _, values in conditions for value in values]


def _mentions(words: str) -> tuple[str, list[Any]]:
    """In any case as far as the engine knows it (SQLite: ASCII only), or exactly as written."""
    written = f"%{words.replace('!', '!!').replace('%', '!%').replace('_', '!_')}%"
    newest = "e.id > (SELECT COALESCE(MAX(id), 0) FROM events) - ?"
    columns = [form for name in ("subject_json", "event_id") for form in (f"LOWER(e.{name})", f"e.{name}")]
    places = " OR ".join(f"{column} LIKE ? ESCAPE '!'" for column in columns)
    likes = [written.lower(), written] * 2
    return f"(e.event_id = ? OR e.dedupe_key = ? OR ({newest} AND ({places})))", [words, words, SEARCHED, *likes]
