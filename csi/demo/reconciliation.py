"""Compare what was served, stored and received, and report what was lost. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EventRecord:
    """The columns of a row in `events` that the comparison needs."""

    event_id: str
    key: str
    state: str
    first_seen_at: float
    delivered_at: float | None = None


@dataclass(frozen=True)
class LedgerContents:
    """Three independent records: the simulator's ledger, CSI's database, and the receiver's ledger."""

    served: frozenset[str] = frozenset()
    """Dedupe keys of all items in responses that the simulator sent in full."""
    events: tuple[EventRecord, ...] = ()
    received: tuple[str, ...] = ()
    """Event ids that the receiver accepted, once for each time it received them."""
    dead: tuple[str, ...] = ()
    """Open dead letters: event ids, or the keys of items that never became events."""
    inbox: int = 0


@dataclass(frozen=True)
class DeliverySummary:
    """The result. `lost` and `unexpected` must be 0; `extra` is 0 unless a receiver's response was lost."""

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


def summarize(contents: LedgerContents) -> DeliverySummary:
    """Pending items also count as lost: call this after everything had time to arrive."""
    events = contents.events
    ids, keys = {event.event_id for event in events}, {event.key for event in events}
    received, dead = set(contents.received), set(contents.dead)
    latencies = sorted(
        1000 * (event.delivered_at - event.first_seen_at)
        for event in events
        if event.state == "delivered" and event.delivered_at is not None
    )
    return DeliverySummary(
        served=len(contents.served),
        events=len(events),
        delivered=sum(event.state == "delivered" for event in events),
        dead=len(contents.dead),
        pending=sum(event.state in ("pending", "in_flight") for event in events) + contents.inbox,
        lost=len(contents.served - keys - dead) + len(ids - received - dead),
        extra=len(contents.received) - len(received),
        p50_ms=percentile(latencies, 50),
        p95_ms=percentile(latencies, 95),
        unexpected=len(received - ids) + len(keys - contents.served),
    )


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """The nearest rank, which is always a measured value; None for an empty sequence."""
    if not ordered:
        return None
    rank = math.ceil(len(ordered) * percent / 100)
    return round(ordered[max(rank, 1) - 1], 1)


def summary_sentence(summary: DeliverySummary) -> str:
    if summary.lost:
        return f"{_items(summary.lost)} did not arrive. Run the demo again with --keep to inspect database and logs."
    if not summary.events:
        return "Nothing was published, and nothing was lost."
    times = f"{_items(summary.extra)} more than once" if summary.extra else "each exactly once"
    if summary.dead:
        return f"Nothing was lost: {_items(summary.dead)} in the dead letter queue, all others delivered, {times}."
    return f"Every served item was delivered, {times}."


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number:,} items"
