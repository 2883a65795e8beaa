"""The outbox: each event on its way to each destination. `pending` → `in_flight` → gone, or back to `pending`."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store import events
from csi.store.db import changed, chunks, fetch, is_postgres, marks, run, skip_locked
from csi.store.events import StoredEvent

UNORDERED = ("high_volume", "stream")
"""Lanes that trade order within a watch for several requests at once."""

# An event waits while an earlier item of its watch is not an event yet, or is on its first way to the receiver. It does
# not wait for one that is being retried: then the order is lost anyway, and one bad event must not stop a watch.
_IN_ORDER = """
    AND NOT EXISTS (
        SELECT 1 FROM inbox i WHERE i.state = 'new' AND i.watch_id = o.watch_id AND i.id < o.seq)
    AND NOT EXISTS (
        SELECT 1 FROM outbox a JOIN batches b ON b.id = a.batch_id
        WHERE a.state = 'in_flight' AND a.watch_id = o.watch_id AND a.seq < o.seq
          AND a.destination = o.destination AND a.tier = o.tier AND b.attempts = 0)
"""
_CLAIMABLE = """
    SELECT o.id, o.event_pk, o.watch_id FROM outbox o
    WHERE o.state = 'pending' AND o.destination = ? AND o.tier = ? {order}
    ORDER BY o.due_at, o.seq LIMIT ?
"""


@dataclass(frozen=True)
class Entry:
    """A pending event that may be sent now."""

    id: int
    event_pk: int
    watch_id: int | None


def put(
    event_pk: int, destinations: Sequence[str], *, tier: str, watch_id: int | None, seq: int, due_at: float
) -> None:
    for destination in destinations:
        run(
            "INSERT INTO outbox (event_pk, destination, tier, watch_id, seq, due_at) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (event_pk, destination) DO NOTHING",
            event_pk,
            destination,
            tier,
            watch_id,
            seq,
            due_at,
        )


def hold_lane(destination: str, tier: str) -> None:
    """One at a time opens batches of a lane, until its transaction ends. SQLite has one writer anyway."""
    if is_postgres():
        run("SELECT pg_advisory_xact_lock(hashtext(?))", f"{destination}/{tier}")


def claimable(destination: str, tier: str, limit: int) -> list[Entry]:
    """Pending events that may be sent now, oldest first, in order within each watch (ops/decisions/0005)."""
    order = "" if tier in UNORDERED else _IN_ORDER
    sql = _CLAIMABLE.replace("{order}", order) + skip_locked()
    return [Entry(*row) for row in fetch(sql, destination, tier, limit)]


def waiting(destination: str, tier: str) -> tuple[int, float | None]:
    """How many are pending in a tier, and when the oldest is due."""
    ((count, due_at),) = fetch(
        "SELECT COUNT(*), MIN(due_at) FROM outbox WHERE state = 'pending' AND destination = ? AND tier = ?",
        destination,
        tier,
    )
    return int(count), due_at


def pending_count(tier: str) -> int:
    """Over all destinations."""
    return int(fetch("SELECT COUNT(*) FROM outbox WHERE state = 'pending' AND tier = ?", tier)[0][0])


def contents(batch_id: int) -> list[StoredEvent]:
    """The events of a batch, in the order they are sent."""
    sql = (
        f"SELECT {events.COLUMNS} FROM outbox o JOIN events e ON e.id = o.event_pk "
        "WHERE o.batch_id = ? ORDER BY o.due_at, o.seq"
    )
    return [StoredEvent(*row) for row in fetch(sql, batch_id)]


def take(entry_ids: Sequence[int], event_pks: Sequence[int], batch_id: int) -> None:
    """These entries travel in this batch."""
    for chunk in chunks(entry_ids):
        run(f"UPDATE outbox SET state = 'in_flight', batch_id = ? WHERE id IN ({marks(chunk)})", batch_id, *chunk)
    for event_pk in event_pks:
        run("INSERT INTO batch_events (batch_id, event_pk) VALUES (?, ?) ON CONFLICT DO NOTHING", batch_id, event_pk)
    events.mark(event_pks, "in_flight", "pending")


def move(event_pks: Sequence[int], from_batch: int, to_batch: int) -> None:
    """A part of one batch travels in another one."""
    for chunk in chunks(event_pks):
        run(
            f"UPDATE outbox SET batch_id = ? WHERE batch_id = ? AND event_pk IN ({marks(chunk)})",
            to_batch,
            from_batch,
            *chunk,
        )
    for event_pk in event_pks:
        run("INSERT INTO batch_events (batch_id, event_pk) VALUES (?, ?) ON CONFLICT DO NOTHING", to_batch, event_pk)


def put_back(batch_ids: Sequence[int]) -> None:
    """The events of these batches are pending again."""
    for chunk in chunks(batch_ids):
        found = fetch(f"SELECT event_pk FROM outbox WHERE batch_id IN ({marks(chunk)})", *chunk)
        sql = f"UPDATE outbox SET state = 'pending', batch_id = NULL WHERE batch_id IN ({marks(chunk)})"
        run(sql, *chunk)
        events.mark([row[0] for row in found], "pending", "in_flight")


def leave(batch_id: int, event_pks: Sequence[int]) -> int:
    """These events of a batch need not be sent any more: they arrived, or they died."""
    return sum(
        changed(f"DELETE FROM outbox WHERE batch_id = ? AND event_pk IN ({marks(chunk)})", batch_id, *chunk)
        for chunk in chunks(event_pks)
    )


def put_again(event_id: str, destination: str, due_at: float) -> bool:
    """A dead event goes out once more. False: it is on its way already, or is not stored any more."""
    return bool(
        changed(
            "INSERT INTO outbox (event_pk, destination, tier, watch_id, seq, due_at) "
            "SELECT id, ?, tier, watch_id, seq, ? FROM events WHERE event_id = ? "
            "ON CONFLICT (event_pk, destination) DO NOTHING",
            destination,
            due_at,
            event_id,
        )
        and run("UPDATE events SET state = 'pending' WHERE event_id = ? AND state <> 'in_flight'", event_id)
    )


def drop_pending(event_pk: int) -> list[str]:
    """This event is not sent any more where it only waits. Returns the destinations."""
    sql = "DELETE FROM outbox WHERE event_pk = ? AND state = 'pending' RETURNING destination"
    return [row[0] for row in fetch(sql, event_pk)]
