"""Batches: `ready` → `sending` → `delivered`, `dead`, `split`, `released`, or back to `ready` with a later time."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from csi.store import outbox
from csi.store.db import OWNER, changed, column, fetch, fetch_one, marks, new_token, number, run, value
from csi.store.outbox import Entry

GRACE_SECONDS = 5.0
RETRY_GRACE_SECONDS = 1.0
"""A retry whose wake-up was lost still comes within 20 % of its time."""
UNSETTLED = ("ready", "sending")

_COLUMNS = (
    "id, batch_id, destination, tier, size, probe, state, attempts, crashes, lease_token, sibling, rest, proof, "
    "letter_id"
)
# In full wherever it is meant: SQLite uses the partial index only for a condition that repeats the index's own.
_UNSETTLED_SQL = "state IN ('ready', 'sending')"
# A batch that is still `sending` after its lease belongs to a thread that died: the claim counts one crash. `wake_at`
# moves to the end of the lease, when the maintenance loop would wake the batch again.
_CLAIM = f"""
    UPDATE batches SET state = 'sending', lease_token = ?, lease_until = ?, wake_at = ?,
        crashes = crashes + CASE WHEN state = 'sending' THEN 1 ELSE 0 END
    WHERE id = ? AND ((state = 'ready' AND next_attempt_at <= ?) OR (state = 'sending' AND lease_until < ?))
    RETURNING {_COLUMNS}
"""
# By token: a thread whose lease expired must not settle what the next holder is sending.
_RELEASE = "lease_token = NULL, lease_until = NULL WHERE id = ? AND state = 'sending' AND lease_token = ?"


@dataclass(frozen=True)
class Batch:
    """A batch as it was when it was read or claimed."""

    id: int
    batch_id: str
    destination: str
    tier: str
    size: int
    probe: bool
    state: str
    attempts: int
    crashes: int
    lease_token: str | None
    sibling: int | None = None
    """The other half of a refused batch, which waits for this one's answer."""
    cleared_id: int | None = None
    """The batch (column `rest`) that collects the events which the search has cleared, until the refused one is
    found."""
    refusal: str | None = None
    """Column `proof`: why the receiver refused this event and its sibling together. If it accepts the sibling, this
    event is the refused one."""
    letter_id: int | None = None
    """The dead letter that this batch sends as a probe."""


@dataclass(frozen=True)
class Sending:
    """The number of requests under way to one destination in one lane, of this process or of the others."""

    destination: str
    tier: str
    is_own: bool
    count: int


def create(
    entries: Sequence[Entry],
    *,
    destination: str,
    tier: str,
    now: float,
    probe: bool = False,
    letter_id: int | None = None,
) -> int:
    """Freeze these pending entries into one batch, due now."""
    # Its members stay the same over all retries: `batch_id` is also the message id of Standard Webhooks.
    batch = _insert(destination, tier, len(entries), now, probe=probe, letter_id=letter_id)
    outbox.assign_to_batch([entry.id for entry in entries], [entry.event_pk for entry in entries], batch)
    return batch


def split_off(
    batch: Batch, event_pks: Sequence[int], now: float, *, wait: float = 0, refusal: str | None = None
) -> int:
    """A part of a batch becomes a batch with attempts of its own, due now or after `wait` seconds."""
    part = _insert(batch.destination, batch.tier, len(event_pks), now)
    outbox.move(event_pks, batch.id, part)
    if wait or refusal:
        later = (now + wait, now + wait + GRACE_SECONDS, refusal, part)
        run("UPDATE batches SET next_attempt_at = ?, wake_at = ?, proof = ? WHERE id = ?", *later)
    return part


def link_parts(batch_id: int, *, sibling: int | None, cleared_id: int | None) -> None:
    """Store on one part of a split batch which parts wait for its answer."""
    run("UPDATE batches SET sibling = ?, rest = ? WHERE id = ?", sibling, cleared_id, batch_id)


def settle_waiting(batch_id: int, state: str, now: float) -> Batch | None:
    """Settle a part that was never sent. None: it is not waiting any more."""
    sql = f"UPDATE batches SET state = ?, settled_at = ? WHERE id = ? AND state = 'ready' RETURNING {_COLUMNS}"
    return fetch_one(Batch, sql, state, now, batch_id)


def set_due(batch_id: int, at: float) -> bool:
    """Set when a waiting part is due. False: it does not wait any more."""
    due = (at, at + GRACE_SECONDS, batch_id)
    return bool(changed("UPDATE batches SET next_attempt_at = ?, wake_at = ? WHERE id = ? AND state = 'ready'", *due))


def _insert(
    destination: str, tier: str, size: int, now: float, *, probe: bool = False, letter_id: int | None = None
) -> int:
    sql = (
        "INSERT INTO batches "
        "(batch_id, destination, tier, size, probe, letter_id, next_attempt_at, wake_at, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id"
    )
    what = (new_batch_id(now), destination, tier, size, probe, letter_id)
    return number(sql, *what, now, now + GRACE_SECONDS, now)


def new_batch_id(now: float) -> str:
    stamp = datetime.fromtimestamp(int(now), UTC).strftime("%Y%m%d_%H%M%S")
    return f"batch_{stamp}_{secrets.token_hex(4)}"


def find(batch_id: int) -> Batch | None:
    return fetch_one(Batch, f"SELECT {_COLUMNS} FROM batches WHERE id = ?", batch_id)


def claim(batch_id: int, now: float, lease_seconds: float) -> Batch | None:
    """Lease one batch for one request. None: it is not due, settled, or leased by another thread.

    A batch whose lease ran out is claimed again: its last request may or may not have arrived. That is counted in
    `crashes`, not in `attempts`.
    """
    until = now + lease_seconds
    return fetch_one(Batch, _CLAIM, new_token(), until, until, batch_id, now, now)


def is_unsettled(batch_id: int | None) -> bool:
    return batch_id is not None and bool(fetch(f"SELECT 1 FROM batches WHERE id = ? AND {_UNSETTLED_SQL}", batch_id))


def is_sending(batch_id: int | None) -> bool:
    sql = f"SELECT 1 FROM batches WHERE id = ? AND {_UNSETTLED_SQL} AND state = 'sending'"
    return batch_id is not None and bool(fetch(sql, batch_id))


def unsettled_count(destination: str, tier: str, due_by: float = math.inf) -> int:
    """Batches that are being sent or are due by this time: one that waits for its retry leaves room for others."""
    sql = (
        f"SELECT COUNT(*) FROM batches WHERE {_UNSETTLED_SQL} AND destination = ? AND tier = ? AND next_attempt_at <= ?"
    )
    return number(sql, destination, tier, due_by)


def sending(now: float) -> list[Sending]:
    """Requests under way, by destination and lane, of this process and of all others."""
    # Counted from the leases and not in memory, so that the limits hold over all workers and survive a crash.
    sql = (
        f"SELECT destination, tier, substr(lease_token, 1, {len(OWNER)}) = ?, COUNT(*) FROM batches "
        f"WHERE {_UNSETTLED_SQL} AND state = 'sending' AND lease_until >= ? GROUP BY 1, 2, 3"
    )
    return [Sending(name, tier, bool(is_own), int(count)) for name, tier, is_own, count in fetch(sql, OWNER, now)]


@dataclass(frozen=True)
class TriedProbes:
    """The probes with an event since the circuit opened, none of which was accepted."""

    last_was_dead_letter: bool = False
    dead_letters_refused: int = 0
    events_refused: int = 0
    """Not counting dead letters."""


def tried_probes(destination: str, since: float) -> TriedProbes:
    sql = (
        "SELECT b.letter_id IS NOT NULL, a.outcome = 'refused' FROM delivery_attempts a JOIN batches b "
        "ON b.id = a.batch_id WHERE a.destination = ? AND a.started_at > ? AND b.probe AND a.outcome <> 'sending' "
        "ORDER BY a.id"
    )
    tried = [(bool(is_letter), bool(is_refused)) for is_letter, is_refused in fetch(sql, destination, since)]
    return TriedProbes(
        last_was_dead_letter=bool(tried) and tried[-1][0],
        dead_letters_refused=tried.count((True, True)),
        events_refused=tried.count((False, True)),
    )


def finish(batch: Batch, state: str, now: float) -> bool:
    """Settle a batch for good. False: the lease was lost, and another thread settles it."""
    sql = f"UPDATE batches SET state = ?, settled_at = ?, {_RELEASE}"
    return bool(changed(sql, state, now, batch.id, batch.lease_token))


def retry_at(batch: Batch, at: float, *, used_attempt: bool) -> bool:
    """Back to `ready`, due at `at`."""
    sql = f"UPDATE batches SET state = 'ready', attempts = ?, next_attempt_at = ?, wake_at = ?, {_RELEASE}"
    attempts = batch.attempts + 1 if used_attempt else batch.attempts  # not for Retry-After, which is no failure
    return bool(changed(sql, attempts, at, at + RETRY_GRACE_SECONDS, batch.id, batch.lease_token))


def release(batch: Batch, now: float) -> None:
    """Dissolve a claimed batch: its events are pending again, and no attempt was used."""
    # Only the holder of the lease may return the events, or they would be pending and in flight at once.
    if finish(batch, "released", now):
        outbox.put_back([batch.id])


def delay(batch: Batch, until: float) -> None:
    """A waiting batch is not due before this time."""
    sql = "UPDATE batches SET next_attempt_at = ?, wake_at = ? WHERE id = ? AND state = 'ready' AND next_attempt_at < ?"
    run(sql, until, until + GRACE_SECONDS, batch.id, until)


def release_waiting(destination: str, keep: int | None, now: float) -> None:
    """Dissolve the waiting batches of a destination, except `keep`: their events are pending again."""
    # Not those that are `sending`: their threads settle them, and find the circuit open.
    sql = f"SELECT id FROM batches WHERE {_UNSETTLED_SQL} AND state = 'ready' AND destination = ? AND id <> ?"
    ids = column(sql, destination, keep or 0)
    if ids:
        run(f"UPDATE batches SET state = 'released', settled_at = ? WHERE id IN ({marks(ids)})", now, *ids)
        outbox.put_back(ids)


def put_back_forgotten() -> int:
    """Reset events to pending whose batch is settled or deleted. Returns how many batches: a bug if any."""
    sql = (
        "SELECT DISTINCT o.batch_id FROM outbox o LEFT JOIN batches b ON b.id = o.batch_id "
        "WHERE o.state = 'in_flight' AND (b.id IS NULL OR b.state NOT IN ('ready', 'sending'))"
    )
    ids = column(sql)
    outbox.put_back(ids)
    return len(ids)


def oldest_failing(destination: str) -> int | None:
    """The oldest batch that has failed already and is not settled."""
    sql = f"SELECT MIN(id) FROM batches WHERE {_UNSETTLED_SQL} AND destination = ? AND attempts > 0"
    found: int | None = value(sql, destination)
    return found


def overdue(now: float, limit: int = 200) -> list[int]:
    """Batches whose wake-up or whose worker was lost. Moves their wake time: each is returned once until then."""
    sql = f"SELECT id FROM batches WHERE {_UNSETTLED_SQL} AND wake_at <= ? ORDER BY id LIMIT ?"
    ids: list[int] = column(sql, now, limit)
    if ids:
        # Later by twice the grace period, or every pass of the maintenance loop would enqueue the same batches again.
        later = f"UPDATE batches SET wake_at = ? WHERE id IN ({marks(ids)}) AND {_UNSETTLED_SQL} AND wake_at <= ?"
        run(later, now + 2 * GRACE_SECONDS, *ids, now)
    return ids


def next_ready(destination: str, now: float, *, urgent: bool) -> Batch | None:
    """A due batch that waits for a free slot: to this destination first."""
    lanes = "tier = 'urgent'" if urgent else "tier <> 'urgent'"
    sql = (
        f"SELECT {_COLUMNS} FROM batches WHERE {_UNSETTLED_SQL} AND state = 'ready' AND next_attempt_at <= ? "
        f"AND {lanes} ORDER BY destination <> ?, id LIMIT 1"
    )
    return fetch_one(Batch, sql, now, destination)
