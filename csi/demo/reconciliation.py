"""What became of everything: the ledgers of source and receiver held against the database (FAULTS §1). Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WAITING = ("pending", "in_flight")


@dataclass(frozen=True)
class EventRecord:
    """One row of `events`, as far as the account needs it."""

    event_id: str
    key: str
    state: str
    first_seen_at: float
    delivered_at: float | None = None


@dataclass(frozen=True)
class LedgerContents:
    """Three ledgers, each written by another process: S the source's, A the database's, U the receiver's."""

    served: frozenset[str] = frozenset()
    """S: the keys of all items in complete answers."""
    events: tuple[EventRecord, ...] = ()
    """A."""
    received: tuple[str, ...] = ()
    """U: event ids that the receiver took, once for every time it got one."""
    dead: tuple[str, ...] = ()
    """Open dead letters: event ids, or the keys of items that never became events."""
    inbox: int = 0


@dataclass(frozen=True)
class DeliverySummary:
    """The account. `lost` and `unexpected` are 0 in a healthy run, `extra` is unless an answer was lost."""

    served: int
    events: int
    delivered: int
    dead: int
    pending: int
    lost: int
    extra: int
    p50_ms: float | None
    p95_ms: float | None
    unexpected: int


def summarize(books: LedgerContents) -> DeliverySummary:
    """What still waits counts as lost, too: ask after the drain."""
    ids, keys = {event.event_id for event in books.events}, {event.key for event in books.events}
    received, dead = set(books.received), set(books.dead)
    times = latencies(books.events)
    return DeliverySummary(
        served=len(books.served),
        events=len(books.events),
        delivered=sum(event.state == "delivered" for event in books.events),
        dead=len(books.dead),
        pending=sum(event.state in WAITING for event in books.events) + books.inbox,
        lost=len(books.served - keys - dead) + len(ids - received - dead),
        extra=len(books.received) - len(received),
        p50_ms=percentile(times, 50),
        p95_ms=percentile(times, 95),
        unexpected=len(received - ids) + len(keys - books.served),
    )


def latencies(events: Sequence[EventRecord]) -> list[float]:
    """First seen → accepted, in milliseconds, sorted."""
    return sorted(
        1000 * (event.delivered_at - event.first_seen_at)
        for event in events
        if event.state == "delivered" and event.delivered_at is not None
    )


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """The nearest rank: a time that really happened. None where nothing did."""
    if not ordered:
        return None
    rank = math.ceil(len(ordered) * percent / 100)
    return round(ordered[max(rank, 1) - 1], 1)


def summary_sentence(summary: DeliverySummary) -> str:
    """The account in words."""
    if summary.lost:
        return f"{_items(summary.lost)} did not arrive. Run it again with --keep to look at the state it leaves behind."
    if not summary.events:
        return "Nothing was published, and nothing was lost."
    once = f"{_items(summary.extra)} came more than once" if summary.extra else "each of them once"
    if summary.dead:
        return f"Nothing was lost: {_items(summary.dead)} among the dead letters, the others arrived, {once}."
    return f"Everything that was served arrived, {once}."


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number:,} items"
