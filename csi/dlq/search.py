"""Looking for dead letters: by number, age, error, source, destination or state; one by one or in groups."""

from dataclasses import dataclass
from typing import Any, Literal

from csi.dlq.dead_letters import COLUMNS, StoredDeadLetter
from csi.store.db import fetch, marks

GroupBy = Literal["error", "cause", "source", "destination"]
_GROUP_COLUMNS: dict[GroupBy, str] = {
    "error": "COALESCE(error_reason, '')",
    "cause": "cause",
    "source": "source",
    "destination": "destination",
}


@dataclass(frozen=True)
class DeadLetterFilter:
    """Which letters are meant. What is not said does not matter; several conditions all hold."""

    ids: tuple[int, ...] = ()
    states: tuple[str, ...] = ("open",)
    since: float | None = None
    source: str | None = None
    destination: str | None = None
    error_like: str | None = None
    cause: str | None = None
    error: str | None = None
    """Exactly this error, as `groups` tells it."""


@dataclass(frozen=True)
class DeadLetterGroup:
    """Letters that have one thing in common."""

    key: str
    count: int
    causes: tuple[str, ...]
    first_died_at: float
    last_died_at: float
    example: int
    """The newest of them, to look at."""


def newest(wish: DeadLetterFilter, limit: int) -> list[StoredDeadLetter]:
    """Newest first."""
    where, values = _where(wish)
    sql = f"SELECT {COLUMNS} FROM dead_letter WHERE {where} ORDER BY died_at DESC, id DESC LIMIT ?"
    return [StoredDeadLetter(*row) for row in fetch(sql, *values, limit)]


def page(wish: DeadLetterFilter, limit: int, before: int | None = None) -> list[StoredDeadLetter]:
    """By number, the newest first; `before` is the number of the last one of the page before this one."""
    where, values = _where(wish)
    sql = f"SELECT {COLUMNS} FROM dead_letter WHERE {where} AND id < ? ORDER BY id DESC LIMIT ?"
    return [StoredDeadLetter(*row) for row in fetch(sql, *values, before or 2**62, limit)]


def ids(wish: DeadLetterFilter) -> list[int]:
    """All of them, oldest first: the order in which they go out again."""
    where, values = _where(wish)
    return [row[0] for row in fetch(f"SELECT id FROM dead_letter WHERE {where} ORDER BY id", *values)]


def count(wish: DeadLetterFilter) -> int:
    where, values = _where(wish)
    return int(fetch(f"SELECT COUNT(*) FROM dead_letter WHERE {where}", *values)[0][0])


def groups(wish: DeadLetterFilter, by: GroupBy) -> list[DeadLetterGroup]:
    """The largest group first."""
    where, values = _where(wish)
    column = _GROUP_COLUMNS[by]
    sql = (
        f"SELECT {column}, COUNT(*), MIN(cause), MAX(cause), MIN(died_at), MAX(died_at), MAX(id) FROM dead_letter "
        f"WHERE {where} GROUP BY {column} ORDER BY COUNT(*) DESC, {column}"
    )
    return [
        DeadLetterGroup(key, int(number), tuple(sorted({first, last})), oldest, newest, example)
        for key, number, first, last, oldest, newest, example in fetch(sql, *values)
    ]


def _where(wish: DeadLetterFilter) -> tuple[str, list[Any]]:
    conditions: list[tuple[str, list[Any]]] = [("1 = 1", [])]
    if wish.ids:
        conditions.append((f"id IN ({marks(wish.ids)})", [*wish.ids]))
    if wish.states:
        conditions.append((f"state IN ({marks(wish.states)})", [*wish.states]))
    if wish.since is not None:
        conditions.append(("died_at >= ?", [wish.since]))
    if wish.source is not None:
        conditions.append(("source = ?", [wish.source]))
    if wish.destination is not None:
        conditions.append(("destination = ?", [wish.destination]))
    if wish.cause is not None:
        conditions.append(("cause = ?", [wish.cause]))
    if wish.error is not None:
        conditions.append(("COALESCE(error_reason, '') = ?", [wish.error]))
    if wish.error_like is not None:
        conditions.append(("LOWER(COALESCE(error_reason, '')) LIKE ? ESCAPE '!'", [_pattern(wish.error_like)]))
    return " AND ".join(text for text, _ in conditions), [value for _, values in conditions for value in values]


def _pattern(text: str) -> str:
    """Anywhere in the text, in any case; `%` stands for anything, as people who know SQL expect."""
    return f"%{text.lower().replace('!', '!!').replace('_', '!_')}%"
