"""Counts over time and by state, for charts and metrics. Reads only."""

from dataclasses import dataclass

from csi.store.db import fetch


@dataclass(frozen=True)
class FlowChart:
    """Events first seen, events delivered and dead letters per interval, the oldest first; the last is not over yet."""

    starts: float
    step: int
    seen: tuple[int, ...]
    arrived: tuple[int, ...]
    died: tuple[int, ...]


@dataclass(frozen=True)
class RecentDeadLetters:
    """Dead letters of a recent time that are open, and events delivered in it. Both are counted up to MOST_COUNTED."""

    dead: int = 0
    delivered: int = 0


MOST_COUNTED = 1_000


def recent_dead_letters(since: float) -> RecentDeadLetters:
    """For a judgement by share. Health checks ask it, so its cost does not grow with the number of events."""
    counted = "SELECT COUNT(*) FROM (SELECT 1 FROM {} LIMIT ?) AS found"
    dead = int(fetch(counted.format("dead_letter WHERE died_at >= ? AND state = 'open'"), since, MOST_COUNTED)[0][0])
    if not dead:
        return RecentDeadLetters()
    delivered = fetch(counted.format("events WHERE delivered_at >= ?"), since, MOST_COUNTED)[0][0]
    return RecentDeadLetters(dead, int(delivered))


def flow_chart(now: float, seconds: float, step: int) -> FlowChart:
    """The intervals that end with the current one; each begins at a whole multiple of `step` seconds."""
    last, count = int(now // step), int(seconds // step)
    places = range(last - count + 1, last + 1)
    return FlowChart(
        starts=float(places[0] * step),
        step=step,
        seen=_counted("events", "first_seen_at", places, step),
        arrived=_counted("events", "delivered_at", places, step),
        died=_counted("dead_letter", "died_at", places, step),
    )


def _counted(table: str, column: str, places: range, step: int) -> tuple[int, ...]:
    # The number goes into the text: PostgreSQL would take the same mark in SELECT and GROUP BY for two things.
    sql = (
        f"SELECT CAST({column} AS BIGINT) / {int(step)} AS place, COUNT(*) FROM {table} WHERE {column} >= ? GROUP BY 1"
    )
    found = dict(fetch(sql, places[0] * step))
    return tuple(found.get(place, 0) for place in places)


def open_dead_letters() -> dict[str, int]:
    """By cause."""
    sql = "SELECT cause, COUNT(*) FROM dead_letter WHERE state = 'open' GROUP BY cause"
    return dict(fetch(sql))
