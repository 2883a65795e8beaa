"""Counts over time and by state, for charts and metrics. Reads only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from csi.store.db import fetch, marks


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
    """Dead letters of a recent time that are open, and events delivered in it, each counted up to MOST_COUNTED."""

    dead: int = 0
    delivered: int = 0
    of_receivers: Mapping[str, int] = field(default_factory=dict)
    """By destination: those of `dead` whose cause is the receiver."""


MOST_COUNTED = 1_000


def recent_dead_letters(since: float, receiver_causes: Sequence[str]) -> RecentDeadLetters:
    """For a judgement by share. Health checks ask it, so its cost does not grow with the number of events."""
    counted = "SELECT COUNT(*) FROM (SELECT 1 FROM {} LIMIT ?) AS found"
    lately, causes = "dead_letter WHERE died_at >= ? AND state = 'open'", f"({marks(receiver_causes)})"
    # Apart, so that the many of one receiver do not use up the limit for those of the others.
    by_receiver = f"SELECT destination, COUNT(*) FROM {lately} AND cause IN {causes} GROUP BY destination"
    of_receivers = fetch(by_receiver, since, *receiver_causes)
    others = fetch(counted.format(f"{lately} AND cause NOT IN {causes}"), since, *receiver_causes, MOST_COUNTED)[0][0]
    found = {name: min(int(number), MOST_COUNTED) for name, number in of_receivers}
    dead = int(others) + sum(found.values())
    if not dead:
        return RecentDeadLetters()
    delivered = fetch(counted.format("events WHERE delivered_at >= ?"), since, MOST_COUNTED)[0][0]
    return RecentDeadLetters(dead, int(delivered), found)


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
