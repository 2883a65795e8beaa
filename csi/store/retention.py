"""Delete old rows, a few per transaction; never undelivered events, and never dead letters that are still open.

Rows are chosen without a lock and deleted under one, where the conditions that protect them are checked again. Events,
batches and attempts are scanned by id, which grows with time: an index on time would slow down every insert.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from csi import clock
from csi.store import heartbeats, poll_history
from csi.store.db import changed, column, fetch, is_postgres, marks, number, writing

DAY = 86_400.0
HEARTBEAT = "retention"
"""The `beat_at` of this row is the time up to which rows were deleted."""

CHUNK = 100
"""Rows in one transaction: it holds the write lock for about 10 ms, under 50 ms on a busy machine."""

_SETTLED = "('delivered', 'dead', 'split', 'released')"
_CLOSED = "('replayed', 'discarded')"
# Delivered, or dead with a closed dead letter: an open or replaying dead letter needs its event.
_EVENT_GOES = """
    e.state IN ('delivered', 'dead', 'quarantined') AND COALESCE(e.delivered_at, e.first_seen_at) < ?
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.event_pk = e.id)
    AND NOT EXISTS (SELECT 1 FROM dead_letter d WHERE d.event_id = e.event_id AND d.state IN ('open', 'replaying'))
"""
_BATCH_IS_OLD = f"b.state IN {_SETTLED} AND b.settled_at < ?"
_BATCH_GOES = f"""
    {_BATCH_IS_OLD} AND NOT EXISTS (SELECT 1 FROM batch_events be WHERE be.batch_id = b.id)
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.batch_id = b.id)
"""
_BATCH_WILL_GO = f"""
    {_BATCH_IS_OLD} AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.batch_id = b.id)
    AND NOT EXISTS (SELECT 1 FROM batch_events be JOIN events e ON e.id = be.event_pk
                    WHERE be.batch_id = b.id AND NOT ({_EVENT_GOES}))
"""
_LONE_ATTEMPT = "batch_id IS NULL AND started_at < ?"
_DEAD_LETTER_GOES = f"state IN {_CLOSED} AND closed_at < ?"


@dataclass(frozen=True)
class RetentionLimits:
    """Rows older than these times are deleted."""

    events: float
    dead_letters: float
    keys: float
    """Compared with `expires_at` of a dedupe key."""


@dataclass(frozen=True)
class RetentionChunk:
    """One step: deleted rows by table, and where the next step continues. `after` None: nothing is left to delete."""

    removed: dict[str, int] = field(default_factory=dict)
    after: Any = None

    @property
    def total(self) -> int:
        return sum(self.removed.values())


Step = Callable[[RetentionLimits, Any], RetentionChunk]


def drop_events(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete events with their rows in `batch_events`."""
    return _drop_by_id("events", "first_seen_at", _EVENT_GOES, ("batch_events", "event_pk"), limits.events, after)


def drop_batches(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete batches that have no event left, with their attempts."""
    return _drop_by_id("batches", "created_at", _BATCH_GOES, ("delivery_attempts", "batch_id"), limits.events, after)


def drop_attempts(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete attempts without a batch: probes and tests of a receiver."""
    return _drop_oldest("delivery_attempts", "id", _LONE_ATTEMPT, limits.events)


def drop_dead_letters(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete closed dead letters. An open one is kept at any age: the operator has to decide about it."""
    return _drop_oldest("dead_letter", "id", _DEAD_LETTER_GOES, limits.dead_letters)


def drop_keys(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete expired dedupe keys: the source has not listed their items for `dedupe_days`."""
    return _drop_oldest("dedupe_keys", "key", "expires_at < ?", clock.iso(limits.keys), order="expires_at")


def drop_poll_history(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete the history of removed watches. That of the others does not grow."""
    with writing():
        removed = poll_history.drop_of_removed(limits.events)
    return RetentionChunk({"poll_history": removed} if removed else {}, True if removed else None)


def _drop_by_id(
    table: str, time_column: str, condition: str, dependent: tuple[str, str], limit: float, after: Any
) -> RetentionChunk:
    """Delete the rows of the next window of ids that the condition holds for, after their rows in `dependent`."""
    window = fetch(f"SELECT id, {time_column} FROM {table} WHERE id > ? ORDER BY id LIMIT ?", after or 0, CHUNK)
    # Ids grow with time: when no row of this window is old, no later one is.
    if not any(moment < limit for _, moment in window):
        return RetentionChunk()
    first, last = window[0][0], window[-1][0]
    name = table[0]  # as the conditions name it
    # On PostgreSQL, skip rows that another transaction has locked; the next run deletes them.
    locked = f"FOR UPDATE OF {name} SKIP LOCKED" if is_postgres() else ""
    with writing():
        sql = f"SELECT {name}.id FROM {table} {name} WHERE {name}.id BETWEEN ? AND ? AND {condition} {locked}"
        ids = column(sql, first, last, limit)
        places = (dependent, (table, "id")) if ids else ()
        removed = {place: changed(f"DELETE FROM {place} WHERE {key} IN ({marks(ids)})", *ids) for place, key in places}
        return RetentionChunk(removed, last)


def _drop_oldest(table: str, key: str, condition: str, limit: Any, *, order: str = "id") -> RetentionChunk:
    """Delete a chunk of the rows that the condition holds for, and still holds for under the lock."""
    keys = column(f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT ?", limit, CHUNK)
    if not keys:
        return RetentionChunk()
    with writing():
        sql = f"DELETE FROM {table} WHERE {key} IN ({marks(keys)}) AND {condition}"
        return RetentionChunk({table: changed(sql, *keys, limit)}, True if len(keys) == CHUNK else None)


def has_forgotten_keys(read_at: float, now: float, days: float) -> bool:
    """Whether keys of items that the source listed at `read_at` may be deleted already. Retention deletes keys by the
    time in its own heartbeat, so a wall clock that jumped since that read proves nothing (decision 0041)."""
    if now - read_at <= days * DAY:
        return False
    pruned_to = heartbeats.last_beat(HEARTBEAT)
    return pruned_to is not None and pruned_to - read_at > days * DAY


STEPS: tuple[Step, ...] = (drop_events, drop_batches, drop_attempts, drop_dead_letters, drop_keys, drop_poll_history)


def survey(limits: RetentionLimits) -> dict[str, int]:
    """How many rows would be deleted, by table. Reads whole tables, takes no lock."""
    goes = f"SELECT e.id FROM events e WHERE {_EVENT_GOES}"
    batches = f"SELECT b.id FROM batches b WHERE {_BATCH_WILL_GO}"
    old = (limits.events, limits.events)
    return {
        "events": _count(f"FROM events e WHERE {_EVENT_GOES}", limits.events),
        "batch_events": _count(f"FROM batch_events WHERE event_pk IN ({goes})", limits.events),
        "batches": _count(f"FROM batches b WHERE {_BATCH_WILL_GO}", *old),
        "delivery_attempts": _count(f"FROM delivery_attempts WHERE batch_id IN ({batches})", *old)
        + _count(f"FROM delivery_attempts WHERE {_LONE_ATTEMPT}", limits.events),
        "dead_letter": _count(f"FROM dead_letter WHERE {_DEAD_LETTER_GOES}", limits.dead_letters),
        "dedupe_keys": _count("FROM dedupe_keys WHERE expires_at < ?", clock.iso(limits.keys)),
        "poll_history": poll_history.count_of_removed(limits.events),
    }


def old_open_dead_letters(before: float) -> int:
    """Dead letters older than the limit that are still open."""
    return _count("FROM dead_letter WHERE state = 'open' AND died_at < ?", before)


def _count(rest: str, *values: Any) -> int:
    return number(f"SELECT COUNT(*) {rest}", *values)
