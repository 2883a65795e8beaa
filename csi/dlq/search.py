"""Search dead letters by number, age, error, source, destination or state; list or group them."""

from dataclasses import dataclass
from typing import Any, Literal

from csi.dlq.dead_letters import COLUMNS, StoredDeadLetter
from csi.store.db import column, fetch, fetch_all, marks, number

GroupBy = Literal["error", "cause", "source", "destination"]


@dataclass(frozen=True)
class DeadLetterFilter:
    """Which dead letters to select: all given conditions must hold; None means any."""

    ids: tuple[int, ...] = ()
    states: tuple[str, ...] = ("open",)
    since: float | None = None
    source: str | None = None
    destination: str | None = None
    error_like: str | None = None
    cause: str | None = None
    error: str | None = None
    """Exactly this error, as returned by `groups`."""


@dataclass(frozen=True)
class DeadLetterGroup:
    """Dead letters with the same value in one column."""

    key: str
    count: int
    causes: tuple[str, ...]
    first_died_at: float
    last_died_at: float
    example: int
    """The id of the newest one."""


def newest(chosen: DeadLetterFilter, limit: int) -> list[StoredDeadLetter]:
    """The newest first."""
    where, values = _where(chosen)
    sql = f"SELECT {COLUMNS} FROM dead_letter WHERE {where} ORDER BY died_at DESC, id DESC LIMIT ?"
    return fetch_all(StoredDeadLetter, sql, *values, limit)


def page(
    chosen: DeadLetterFilter, limit: int, after: int | None = None, *, is_oldest_first: bool = False
) -> list[StoredDeadLetter]:
    """By id, the newest first or the oldest first; `after` is the last id of the previous page."""
    where, values = _where(chosen)
    sign, order, start = (">", "ASC", 0) if is_oldest_first else ("<", "DESC", 2**62)
    sql = f"SELECT {COLUMNS} FROM dead_letter WHERE {where} AND id {sign} ? ORDER BY id {order} LIMIT ?"
    return fetch_all(StoredDeadLetter, sql, *values, after or start, limit)


def ids(chosen: DeadLetterFilter) -> list[int]:
    """All ids, oldest first: the order in which they are replayed."""
    where, values = _where(chosen)
    return column(f"SELECT id FROM dead_letter WHERE {where} ORDER BY id", *values)


def count(chosen: DeadLetterFilter) -> int:
    where, values = _where(chosen)
    return number(f"SELECT COUNT(*) FROM dead_letter WHERE {where}", *values)


def groups(chosen: DeadLetterFilter, by: GroupBy) -> list[DeadLetterGroup]:
    """The largest group first."""
    where, values = _where(chosen)
    key = "COALESCE(error_reason, '')" if by == "error" else by
    sql = (
        f"SELECT {key}, COUNT(*), MIN(cause), MAX(cause), MIN(died_at), MAX(died_at), MAX(id) FROM dead_letter "
        f"WHERE {where} GROUP BY {key} ORDER BY COUNT(*) DESC, {key}"
    )
    return [
        DeadLetterGroup(key, int(number), tuple(sorted({first, last})), oldest, newest, example)
        for key, number, first, last, oldest, newest, example in fetch(sql, *values)
    ]


def _where(chosen: DeadLetterFilter) -> tuple[str, list[Any]]:
    conditions: list[tuple[str, list[Any]]] = [("1 = 1", [])]
    if chosen.ids:
        conditions.append((f"id IN ({marks(chosen.ids)})", [*chosen.ids]))
    if chosen.states:
        conditions.append((f"state IN ({marks(chosen.states)})", [*chosen.states]))
    exact = {
        "died_at >= ?": chosen.since,
        "source = ?": chosen.source,
        "destination = ?": chosen.destination,
        "cause = ?": chosen.cause,
        "COALESCE(error_reason, '') = ?": chosen.error,
    }
    conditions += [(sql, [value]) for sql, value in exact.items() if value is not None]
    if chosen.error_like is not None:
        # `%` stays a wildcard, as in SQL; `_` is literal, because error texts contain it.
        pattern = f"%{chosen.error_like.lower().replace('!', '!!').replace('_', '!_')}%"
        conditions.append(("LOWER(COALESCE(error_reason, '')) LIKE ? ESCAPE '!'", [pattern]))
    return " AND ".join(text for text, _ in conditions), [value for _, values in conditions for value in values]
