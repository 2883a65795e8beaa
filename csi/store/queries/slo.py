"""Reading only: the events of a window of time, and the requests that carried them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from csi.store.db import fetch, marks

CHUNK = 2_000
DUPLICATE = "duplicate_event"
"""The receiver's word for an event that it had already (PRD §8.1)."""

# An answer that never came, or came from somebody in between, leaves open whether the receiver took the batch.
_UNSURE = """
    (a.outcome = 'interrupted' OR a.status IN (502, 504)
     OR (a.outcome = 'transient' AND a.status IS NULL AND COALESCE(a.reason, '') NOT IN ('connect', 'busy')))
"""


@dataclass(frozen=True)
class Passage:
    """How one event came through, and whether its watch had been read before it happened."""

    id: int
    source: str
    tier: str
    state: str
    occurred_at: str
    first_seen_at: float
    delivered_at: float | None
    first_read_at: float | None


@dataclass(frozen=True)
class Repeats:
    """Events that were sent, and those that the receiver may have got more than once."""

    sent: int
    reported: int
    """The receiver said that it had them already."""
    possible: int
    """Sent again after a request whose answer was never seen."""


def passages(since: float) -> Iterator[Passage]:
    """Events first seen since then, newest first. Ids grow with time, so no index on the time is needed."""
    sql = (
        "SELECT e.id, e.source, e.tier, e.state, e.occurred_at, e.first_seen_at, e.delivered_at, w.first_read_at "
        "FROM events e LEFT JOIN watches w ON w.id = e.watch_id WHERE e.id < ? ORDER BY e.id DESC LIMIT ?"
    )
    before, found = 2**62, True
    while found:
        rows = [Passage(*row) for row in fetch(sql, before, CHUNK)]
        wanted = [row for row in rows if row.first_seen_at >= since]
        yield from wanted
        found = bool(wanted)
        before = rows[-1].id if rows else 0


def oldest_event() -> float | None:
    """When the oldest event that is still stored was first seen."""
    found = fetch("SELECT first_seen_at FROM events ORDER BY id LIMIT 1")
    return found[0][0] if found else None


def repeats(destinations: Sequence[str], since: float) -> Repeats:
    if not destinations:
        return Repeats(0, 0, 0)
    here, values = f"a.destination IN ({marks(destinations)}) AND a.started_at >= ?", (*destinations, since)
    sent = fetch(
        "SELECT COALESCE(SUM(b.size), 0) FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id "
        f"WHERE {here} AND a.outcome = 'delivered'",
        *values,
    )
    return Repeats(int(sent[0][0]), _reported(here, values), _possible(here, values))


def _reported(here: str, values: tuple[object, ...]) -> int:
    rows = fetch(
        "SELECT a.status, b.size, a.answer FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id "
        f"WHERE {here} AND a.outcome = 'delivered' AND (a.status = 409 OR a.answer LIKE ?)",
        *values,
        f"%{DUPLICATE}%",
    )
    return sum(size if status == 409 else answer.count(DUPLICATE) for status, size, answer in rows)


def _possible(here: str, values: tuple[object, ...]) -> int:
    sql = (
        "SELECT COUNT(DISTINCT be.event_pk) FROM delivery_attempts a JOIN batch_events be ON be.batch_id = a.batch_id "
        f"WHERE {here} AND {_UNSURE} AND EXISTS ("
        "SELECT 1 FROM batch_events again JOIN delivery_attempts later ON later.batch_id = again.batch_id "
        "WHERE again.event_pk = be.event_pk AND later.id > a.id AND later.outcome = 'delivered')"
    )
    return int(fetch(sql, *values)[0][0])
