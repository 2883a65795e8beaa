"""Batches: `ready` → `sending` → `delivered`, `dead`, `split`, `released`, or back to `ready` with a later time."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from peewee import fn

from csi.store.db import chunks, new_token
from csi.store.models import Batch, Event

GRACE_SECONDS = 5.0
UNSETTLED = ("ready", "sending")


def create(
    event_ids: Sequence[int],
    *,
    destination: str,
    tier: str,
    now: float,
    at: float | None = None,
    probe: bool = False,
) -> int:
    """Freeze these pending (or split-off) events into one batch, due at `at` or now."""
    due = now if at is None else at
    batch = Batch.insert(
        batch_id=new_batch_id(now),
        destination=destination,
        tier=tier,
        size=len(event_ids),
        probe=probe,
        next_attempt_at=due,
        wake_at=due + GRACE_SECONDS,
        created_at=now,
    ).execute()
    for chunk in chunks(event_ids):
        Event.update(state="in_flight", batch_id=batch).where(Event.id.in_(chunk)).execute()
    return int(batch)


def new_batch_id(now: float) -> str:
    stamp = datetime.fromtimestamp(int(now), UTC).strftime("%Y%m%d_%H%M%S")
    return f"batch_{stamp}_{secrets.token_hex(4)}"


def claim(batch_id: int, now: float, lease_seconds: float) -> Batch | None:
    """Hold one batch for one request. None: not due, settled, or in somebody's hands.

    A batch whose lease ran out is taken over: its last request may or may not have arrived. That is counted in
    `crashes`, not in `attempts`.
    """
    token = new_token()
    due = (Batch.state == "ready") & (Batch.next_attempt_at <= now)
    orphan = (Batch.state == "sending") & (Batch.lease_until < now)
    taken = (
        Batch.update(
            state="sending",
            lease_token=token,
            lease_until=now + lease_seconds,
            wake_at=now + lease_seconds,
            crashes=fn.COALESCE(Batch.crashes, 0) + orphan.cast("integer"),
        )
        .where((Batch.id == batch_id) & (due | orphan))
        .execute()
    )
    return Batch.get_or_none(id=batch_id, lease_token=token) if taken else None


def is_unsettled(batch_id: int | None) -> bool:
    return bool(Batch.select().where((Batch.id == batch_id) & Batch.state.in_(UNSETTLED)).exists())


def unsettled_count(destination: str, tier: str) -> int:
    open_ones = Batch.state.in_(UNSETTLED) & (Batch.destination == destination) & (Batch.tier == tier)
    return int(Batch.select().where(open_ones).count())


def sending_count(destination: str, tiers: Sequence[str], now: float) -> int:
    held = (Batch.state == "sending") & (Batch.lease_until >= now)
    return int(Batch.select().where(held & (Batch.destination == destination) & Batch.tier.in_(tiers)).count())


def finish(batch: Batch, state: str, now: float) -> bool:
    """Settle a batch for good. False: the lease was lost, and somebody else settles it."""
    return _leave(batch, state=state, settled_at=now)


def retry_at(batch: Batch, at: float, *, used_attempt: bool) -> bool:
    """Back to `ready`, due at `at`."""
    attempts = batch.attempts + 1 if used_attempt else batch.attempts
    return _leave(batch, state="ready", attempts=attempts, next_attempt_at=at, wake_at=at + GRACE_SECONDS)


def _leave(batch: Batch, **changes: object) -> bool:
    held = (Batch.id == batch.id) & (Batch.state == "sending") & (Batch.lease_token == batch.lease_token)
    return bool(Batch.update(lease_token=None, lease_until=None, **changes).where(held).execute())


def release(batch: Batch, now: float) -> None:
    """Dissolve a batch in hand: its events are pending again, and no attempt was used."""
    if finish(batch, "released", now):
        _back_to_pending([batch.id])


def put_off(batch: Batch, until: float) -> None:
    """A batch that waits anyway waits longer."""
    Batch.update(next_attempt_at=until, wake_at=until + GRACE_SECONDS).where(
        (Batch.id == batch.id) & (Batch.state == "ready") & (Batch.next_attempt_at < until)
    ).execute()


def release_waiting(destination: str, keep: int | None, now: float) -> None:
    """Dissolve batches that wait for their turn: their events are pending again. `keep` goes on by itself."""
    waiting = (Batch.state == "ready") & (Batch.destination == destination) & (Batch.id != (keep or 0))
    ids = [row.id for row in Batch.select(Batch.id).where(waiting)]
    if ids:
        Batch.update(state="released", settled_at=now).where(Batch.id.in_(ids)).execute()
        _back_to_pending(ids)


def _back_to_pending(ids: Sequence[int]) -> None:
    in_flight = Event.batch_id.in_(ids) & (Event.state == "in_flight")
    Event.update(state="pending", batch_id=None).where(in_flight).execute()


def oldest_failing(destination: str) -> int | None:
    """The oldest batch that has failed already and is not settled."""
    tried = Batch.state.in_(UNSETTLED) & (Batch.destination == destination) & (Batch.attempts > 0)
    found: int | None = Batch.select(fn.MIN(Batch.id)).where(tried).scalar()
    return found


def overdue(now: float, limit: int = 200) -> list[int]:
    """Batches whose wake-up seems lost or whose holder seems dead; each is handed out once until its next wake time."""
    due = Batch.state.in_(UNSETTLED) & (Batch.wake_at <= now)
    ids = [row.id for row in Batch.select(Batch.id).where(due).order_by(Batch.id).limit(limit)]
    if ids:
        Batch.update(wake_at=now + 2 * GRACE_SECONDS).where(Batch.id.in_(ids) & due).execute()
    return ids


def next_ready(destination: str, tiers: Sequence[str], now: float) -> int | None:
    """A batch that waited for a free place among the concurrent requests."""
    due = (Batch.state == "ready") & (Batch.next_attempt_at <= now)
    found: int | None = (
        Batch.select(fn.MIN(Batch.id)).where(due & (Batch.destination == destination) & Batch.tier.in_(tiers)).scalar()
    )
    return found
