"""Reading only: how much flowed when, how long it took, and how it stands, in numbers for charts and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import fetch, marks

MOST_WAITS = 5_000
"""The newest deliveries of a window that latencies are worked out from."""


@dataclass(frozen=True)
class Flow:
    """By number of the interval since 1970: how many were first seen, arrived, and died."""

    seen: dict[int, int]
    arrived: dict[int, int]
    died: dict[int, int]


@dataclass(frozen=True)
class Wait:
    """One delivery: when the event was seen, and when the last destination had it."""

    tier: str
    seen_at: float
    arrived_at: float
    occurred_at: str


@dataclass(frozen=True)
class Health:
    """So many watches of a source are like this. A paused one has no other health."""

    source: str
    state: str
    watches: int


def flow(since: float, step: int) -> Flow:
    """Intervals are `step` seconds long and begin at whole multiples of it."""
    return Flow(
        seen=_counted("events", "first_seen_at", since, step),
        arrived=_counted("events", "delivered_at", since, step),
        died=_counted("dead_letter", "died_at", since, step),
    )


def _counted(table: str, column: str, since: float, step: int) -> dict[int, int]:
    # The number goes into the text: PostgreSQL would take the same mark in SELECT and GROUP BY for two things.
    sql = (
        f"SELECT CAST({column} AS BIGINT) / {int(step)} AS place, COUNT(*) FROM {table} WHERE {column} >= ? GROUP BY 1"
    )
    return {int(place): int(count) for place, count in fetch(sql, since)}


def waits(since: float) -> list[Wait]:
    """The newest deliveries since then, newest first."""
    sql = (
        "SELECT tier, first_seen_at, delivered_at, occurred_at FROM events WHERE delivered_at >= ? "
        "ORDER BY delivered_at DESC LIMIT ?"
    )
    return [Wait(tier, seen_at, arrived_at, at) for tier, seen_at, arrived_at, at in fetch(sql, since, MOST_WAITS)]


def repeated(since: float, destinations: Sequence[str]) -> tuple[int, int]:
    """Events that were accepted since then, and how many of them in requests that the receiver knew already (409)."""
    sql = (
        "SELECT COALESCE(SUM(b.size), 0), COALESCE(SUM(CASE WHEN a.status = 409 THEN b.size ELSE 0 END), 0) "
        "FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id "
        "WHERE a.destination = ? AND a.started_at >= ? AND a.outcome = 'delivered'"
    )
    counted = [fetch(sql, name, since)[0] for name in destinations]
    return sum(int(accepted) for accepted, _ in counted), sum(int(known) for _, known in counted)


def health_counts(sources: Sequence[str]) -> list[Health]:
    """Of watches that are not removed, in these sources."""
    if not sources:
        return []
    sql = (
        "SELECT source, CASE WHEN state = 'paused' THEN 'paused' ELSE health END, COUNT(*) FROM watches "
        f"WHERE state <> 'removed' AND source IN ({marks(sources)}) GROUP BY 1, 2"
    )
    return [Health(source, state, int(count)) for source, state, count in fetch(sql, *sources)]


def open_letters() -> dict[str, int]:
    """By cause."""
    sql = "SELECT cause, COUNT(*) FROM dead_letter WHERE state = 'open' GROUP BY cause"
    return {cause: int(count) for cause, count in fetch(sql)}


def letters_since(since: float) -> dict[str, int]:
    """Dead letters of events that died since then, by their state now."""
    sql = "SELECT state, COUNT(*) FROM dead_letter WHERE died_at >= ? GROUP BY state"
    return {state: int(count) for state, count in fetch(sql, since)}
