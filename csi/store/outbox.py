"""The outbox: one entry per event and destination. `pending` → `in_flight` → deleted, or back to `pending`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from csi.config.delivery_settings import RESEND
from csi.store import events
from csi.store.db import changed, chunks, column, fetch, fetch_all, is_postgres, marks, number, run, skip_locked, value
from csi.store.events import StoredEvent

UNORDERED = ("high_volume", "stream", RESEND)
"""Lanes that trade order within a watch for several requests at once."""

# An event waits while an earlier item of its watch is not an event yet, or while its watch has something on its first
# way to the receiver. It does not wait for one that is being retried: then the order is lost anyway, and one bad event
# must not stop a watch.
_BUSY = """
    SELECT a.watch_id FROM batches b JOIN outbox a ON a.batch_id = b.id
    WHERE b.state IN ('ready', 'sending') AND b.destination = ? AND b.tier = ? AND b.attempts = 0
"""
_NOT_EARLIER = """
    AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.state = 'new' AND i.watch_id = o.watch_id AND i.id < o.seq)
"""
_CLAIMABLE = """
    SELECT o.id, o.event_pk, o.watch_id, o.alone FROM outbox o
    WHERE o.state = 'pending' AND o.destination = ? AND o.tier = ? {order}
    ORDER BY o.due_at, o.seq LIMIT ?
"""
_IN_ORDER = f"AND o.watch_id NOT IN ({_BUSY}) {_NOT_EARLIER}"
# From watch to watch by the index, however much each of them has pending.
_HEADS = f"""
    WITH RECURSIVE w (id) AS (
        SELECT MIN(watch_id) FROM outbox WHERE state = 'pending' AND destination = ? AND tier = ?
        UNION ALL
        SELECT (SELECT MIN(watch_id) FROM outbox
                WHERE state = 'pending' AND destination = ? AND tier = ? AND watch_id > w.id)
        FROM w WHERE w.id IS NOT NULL)
    SELECT o.id, o.event_pk, o.watch_id, o.alone FROM w JOIN outbox o ON o.id = (
        SELECT x.id FROM outbox x
        WHERE x.state = 'pending' AND x.destination = ? AND x.tier = ? AND x.watch_id = w.id ORDER BY x.seq LIMIT 1)
    WHERE w.id NOT IN ({_BUSY}) {_NOT_EARLIER}
    ORDER BY o.due_at, o.seq LIMIT ?
"""


@dataclass(frozen=True)
class Entry:
    """A pending event that may be sent now."""

    id: int
    event_pk: int
    watch_id: int | None
    alone: bool = False
    """It was in batches that failed as a whole: it is sent in a batch of its own."""


@dataclass(frozen=True)
class NewEntry:
    """An event to send to one destination. Without a watch it keeps no order."""

    event_pk: int
    destination: str
    tier: str
    watch_id: int | None
    seq: int
    due_at: float


def put(
    event_pk: int, destinations: Sequence[str], *, tier: str, watch_id: int | None, seq: int, due_at: float
) -> None:
    put_many([NewEntry(event_pk, destination, tier, watch_id, seq, due_at) for destination in destinations])


def put_many(entries: Sequence[NewEntry]) -> None:
    # Conflicts are ignored: an event has at most one entry per destination, also if it is stored again.
    for chunk in chunks(entries, 100):
        sql = (
            "INSERT INTO outbox (event_pk, destination, tier, watch_id, seq, due_at) "
            f"VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * len(chunk))} ON CONFLICT (event_pk, destination) DO NOTHING"
        )
        rows = ((it.event_pk, it.destination, it.tier, it.watch_id or 0, it.seq, it.due_at) for it in chunk)
        run(sql, *chain.from_iterable(rows))


def lock_lane(destination: str, tier: str) -> None:
    """Lock the lane until this transaction ends: one transaction at a time opens its batches. SQLite has one writer."""
    if is_postgres():
        run("SELECT pg_advisory_xact_lock(hashtext(?))", f"{destination}/{tier}")


def claimable(destination: str, tier: str, limit: int) -> list[Entry]:
    """Pending events that may be sent now, oldest first, in order within each watch (ops/decisions/0005)."""
    lane = (destination, tier)
    if tier in UNORDERED:
        return _entries(_CLAIMABLE.replace("{order}", ""), *lane, limit)
    return _entries(_CLAIMABLE.replace("{order}", _IN_ORDER), *lane, *lane, limit)


def heads(destination: str, tier: str, limit: int) -> list[Entry]:
    """Of each watch the first pending event, if it may be sent now: what follows it waits for its answer."""
    lane = (destination, tier)
    return _entries(_HEADS, *lane, *lane, *lane, *lane, limit)


def _entries(sql: str, *params: object) -> list[Entry]:
    return fetch_all(Entry, sql + skip_locked(), *params)


def oldest_due(destination: str, tier: str) -> float | None:
    """The earliest time at which a pending event of the lane must be sent. None: nothing is pending."""
    sql = "SELECT due_at FROM outbox WHERE state = 'pending' AND destination = ? AND tier = ? ORDER BY due_at LIMIT 1"
    found: float | None = value(sql, destination, tier)
    return found


def has_pending(destination: str, tier: str, at_least: int) -> bool:
    """Whether at least so many events are pending; counts no further."""
    sql = "SELECT 1 FROM outbox WHERE state = 'pending' AND destination = ? AND tier = ? LIMIT 1 OFFSET ?"
    return bool(fetch(sql, destination, tier, at_least - 1))


def pending_count(tier: str) -> int:
    """Pending events of this lane, over all destinations."""
    return number("SELECT COUNT(*) FROM outbox WHERE state = 'pending' AND tier = ?", tier)


def contents(batch_id: int) -> list[StoredEvent]:
    """The events of a batch, in the order they are sent."""
    sql = (
        f"SELECT {events.COLUMNS} FROM outbox o JOIN events e ON e.id = o.event_pk "
        "WHERE o.batch_id = ? ORDER BY o.due_at, o.seq"
    )
    return fetch_all(StoredEvent, sql, batch_id)


def assign_to_batch(entry_ids: Sequence[int], event_pks: Sequence[int], batch_id: int) -> None:
    """Mark these entries `in_flight` as members of this batch."""
    for chunk in chunks(entry_ids):
        run(f"UPDATE outbox SET state = 'in_flight', batch_id = ? WHERE id IN ({marks(chunk)})", batch_id, *chunk)
    # `batch_events` outlives the outbox entry: the timeline of an event shows the batches that it was in.
    _note_members(batch_id, event_pks)
    events.mark(event_pks, "in_flight", "pending")


def _note_members(batch_id: int, event_pks: Sequence[int]) -> None:
    for chunk in chunks(event_pks, 200):
        rows = ", ".join(["(?, ?)"] * len(chunk))
        run(
            f"INSERT INTO batch_events (batch_id, event_pk) VALUES {rows} ON CONFLICT DO NOTHING",
            *(value for event_pk in chunk for value in (batch_id, event_pk)),
        )


def move(event_pks: Sequence[int], from_batch: int, to_batch: int) -> None:
    """Move a part of one batch into another one."""
    for chunk in chunks(event_pks):
        sql = f"UPDATE outbox SET batch_id = ? WHERE batch_id = ? AND event_pk IN ({marks(chunk)})"
        run(sql, to_batch, from_batch, *chunk)
    _note_members(to_batch, event_pks)


def put_back(batch_ids: Sequence[int]) -> None:
    """The events of these batches are pending again."""
    # An event may go to several destinations: `events.mark` changes only those that are `in_flight`.
    for chunk in chunks(batch_ids):
        found = column(f"SELECT event_pk FROM outbox WHERE batch_id IN ({marks(chunk)})", *chunk)
        run(f"UPDATE outbox SET state = 'pending', batch_id = NULL WHERE batch_id IN ({marks(chunk)})", *chunk)
        events.mark(found, "pending", "in_flight")


def remove(batch_id: int, event_pks: Sequence[int]) -> int:
    """Delete the entries of these events of a batch: they were delivered, or became dead letters."""
    # By batch as well: an event that was moved to another batch meanwhile keeps its entry.
    return sum(
        changed(f"DELETE FROM outbox WHERE batch_id = ? AND event_pk IN ({marks(chunk)})", batch_id, *chunk)
        for chunk in chunks(event_pks)
    )


def pending_entry(event_id: str, destination: str) -> tuple[Entry, str] | None:
    """This event's outbox entry and lane. None: it is in a batch, or not in the outbox."""
    sql = (
        "SELECT o.id, o.event_pk, o.watch_id, o.tier FROM outbox o JOIN events e ON e.id = o.event_pk "
        "WHERE e.event_id = ? AND o.destination = ? AND o.state = 'pending'"
    )
    found = fetch(sql, event_id, destination)
    return (Entry(*found[0][:3]), found[0][3]) if found else None


def requeue(event_id: str, destination: str, due_at: float, *, lane: str | None = None, alone: bool = False) -> bool:
    """A dead event is pending again, in this lane or in that of its tier. False: it is in the outbox already, or not
    stored any more. One that was delivered, and died when it was sent again, stays delivered and in that lane."""
    sql = (
        "INSERT INTO outbox (event_pk, destination, tier, watch_id, seq, due_at, alone) "
        f"SELECT id, ?, CASE WHEN state = 'delivered' THEN '{RESEND}' ELSE COALESCE(?, tier) END, "
        "COALESCE(watch_id, 0), seq, ?, ? FROM events WHERE event_id = ? "
        "ON CONFLICT (event_pk, destination) DO NOTHING"
    )
    if not changed(sql, destination, lane, due_at, alone, event_id):
        return False
    run("UPDATE events SET state = 'pending' WHERE event_id = ? AND state NOT IN ('in_flight', 'delivered')", event_id)
    return True


def send_again(event_pk: int, destination: str, due_at: float) -> bool:
    """Queue an event in the lane `resend`; its own state stays as it is. False: it is queued for this destination."""
    sql = (
        "INSERT INTO outbox (event_pk, destination, tier, watch_id, seq, due_at) "
        f"SELECT id, ?, '{RESEND}', COALESCE(watch_id, 0), seq, ? FROM events WHERE id = ? "
        "ON CONFLICT (event_pk, destination) DO NOTHING"
    )
    return changed(sql, destination, due_at, event_pk) == 1


def drop_pending(event_pk: int) -> list[str]:
    """Delete the event's entries that are in no batch. Returns their destinations."""
    sql = "DELETE FROM outbox WHERE event_pk = ? AND state = 'pending' RETURNING destination"
    return column(sql, event_pk)
