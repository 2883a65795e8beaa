"""Counts over time and by state, for charts and metrics. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import fetch, marks


@dataclass(frozen=True)
class Flow:
    """By number of the interval since 1970: events first seen, events delivered, dead letters written."""

    seen: dict[int, int]
    arrived: dict[int, int]
    died: dict[int, int]


@dataclass(frozen=True)
class WatchCount:
    """The number of watches of a source in one state. A paused one has no other health."""

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


def watch_counts(sources: Sequence[str]) -> list[WatchCount]:
    """Of watches that are not removed, in these sources."""
    if not sources:
        return []
    sql = (
        "SELECT source, CASE WHEN state = 'paused' THEN 'paused' ELSE health END, COUNT(*) FROM watches "
        f"WHERE state <> 'removed' AND source IN ({marks(sources)}) GROUP BY 1, 2"
    )
    return [WatchCount(source, state, int(count)) for source, state, count in fetch(sql, *sources)]


def open_dead_letters() -> dict[str, int]:
    """By cause."""
    sql = "SELECT cause, COUNT(*) FROM dead_letter WHERE state = 'open' GROUP BY cause"
    return {cause: int(count) for cause, count in fetch(sql)}
