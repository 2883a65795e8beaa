"""Delete old rows, a few per transaction; never undelivered events, and never dead letters that are still open.

Rows are chosen without a lock and deleted under one, where the conditions that protect them are checked again. Events,
batches and attempts are scanned by id, which grows with time: an index on time would slow down every insert.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from csi import clock
from csi.store import heartbeats
from csi.store.db import changed, fetch, is_postgres, marks, writing

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
_LETTER_GOES = f"state IN {_CLOSED} AND closed_at < ?"


@dataclass(frozen=True)
class RetentionLimits:
    """Rows older than these times are deleted."""

    events: float
    letters: float
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
    window = fetch("SELECT id, first_seen_at FROM events WHERE id > ? ORDER BY id LIMIT ?", after or 0, CHUNK)
    # Ids grow with time: when no event of this window is old, no later one is.
    if not any(seen_at < limits.events for _, seen_at in window):
        return RetentionChunk()
    first, last = window[0][0], window[-1][0]
    with writing():
        sql = f"SELECT e.id FROM events e WHERE e.id BETWEEN ? AND ? AND {_EVENT_GOES} {_locked('e')}"
        ids = [row[0] for row in fetch(sql, first, last, limits.events)]
        return RetentionChunk(_delete(ids, ("batch_events", "event_pk"), ("events", "id")), last)


def drop_batches(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete batches that have no event left, with their attempts."""
    window = fetch("SELECT id, created_at FROM batches WHERE id > ? ORDER BY id LIMIT ?", after or 0, CHUNK)
    if not any(created_at < limits.events for _, created_at in window):
        return RetentionChunk()
    first, last = window[0][0], window[-1][0]
    with writing():
        sql = f"SELECT b.id FROM batches b WHERE b.id BETWEEN ? AND ? AND {_BATCH_GOES} {_locked('b')}"
        ids = [row[0] for row in fetch(sql, first, last, limits.events)]
        return RetentionChunk(_delete(ids, ("delivery_attempts", "batch_id"), ("batches", "id")), last)


def drop_attempts(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete attempts without a batch: probes and tests of a receiver."""
    ids = _chosen("SELECT id FROM delivery_attempts", _LONE_ATTEMPT, limits.events)
    with writing():
        removed = _delete(ids, ("delivery_attempts", "id"))
    return RetentionChunk(removed, _more(ids))


def drop_letters(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete closed dead letters. An open one is kept at any age: the operator has to decide about it."""
    ids = _chosen("SELECT id FROM dead_letter", _LETTER_GOES, limits.letters)
    with writing():
        removed = _delete(ids, ("dead_letter", "id"), unless_changed=(_LETTER_GOES, limits.letters))
    return RetentionChunk(removed, _more(ids))


def drop_keys(limits: RetentionLimits, after: Any) -> RetentionChunk:
    """Delete expired dedupe keys: the source has not listed their items for `dedupe_days`."""
    end = clock.iso(limits.keys)
    keys = _chosen("SELECT key FROM dedupe_keys", "expires_at < ?", end, order="expires_at")
    with writing():
        removed = _delete(keys, ("dedupe_keys", "key"), unless_changed=("expires_at < ?", end))
    return RetentionChunk(removed, _more(keys))


def has_forgotten_keys(read_at: float, now: float, days: float) -> bool:
    """Whether keys of items that the source listed at `read_at` may be deleted already. Retention deletes keys by the
    time in its own heartbeat, so a wall clock that jumped since that read proves nothing (decision 0041)."""
    if now - read_at <= days * DAY:
        return False
    pruned_to = heartbeats.last_beat(HEARTBEAT)
    return pruned_to is not None and pruned_to - read_at > days * DAY


STEPS: tuple[Step, ...] = (drop_events, drop_batches, drop_attempts, drop_letters, drop_keys)


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
        "dead_letter": _count(f"FROM dead_letter WHERE {_LETTER_GOES}", limits.letters),
        "dedupe_keys": _count("FROM dedupe_keys WHERE expires_at < ?", clock.iso(limits.keys)),
    }


def old_open_letters(before: float) -> int:
    """Dead letters older than the limit that are still open."""
    return _count("FROM dead_letter WHERE state = 'open' AND died_at < ?", before)


def _chosen(select: str, where: str, *values: Any, order: str = "id") -> list[Any]:
    return [row[0] for row in fetch(f"{select} WHERE {where} ORDER BY {order} LIMIT ?", *values, CHUNK)]


def _delete(
    ids: Sequence[Any], *places: tuple[str, str], unless_changed: tuple[str, Any] = ("1 = ?", 1)
) -> dict[str, int]:
    if not ids:
        return {}
    still, value = unless_changed
    return {
        table: changed(f"DELETE FROM {table} WHERE {column} IN ({marks(ids)}) AND {still}", *ids, value)
        for table, column in places
    }


def _more(chosen: Sequence[Any]) -> bool | None:
    return True if len(chosen) == CHUNK else None


def _locked(name: str) -> str:
    """On PostgreSQL, skip rows that another transaction has locked; the next run deletes them."""
    return f"FOR UPDATE OF {name} SKIP LOCKED" if is_postgres() else ""


def _count(rest: str, *values: Any) -> int:
    return int(fetch(f"SELECT COUNT(*) {rest}", *values)[0][0])
