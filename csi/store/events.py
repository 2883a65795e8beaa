"""Events: `pending` → `in_flight` → `delivered`, or back to `pending`, or `dead`, or `quarantined`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peewee import fn

from csi import clock
from csi.ingester.event import CreatorSignalEvent
from csi.store.db import chunks, skip_locked
from csi.store.models import Batch, DedupeKey, Event, InboxItem

UNORDERED_TIER = "high_volume"
"""The tier that trades order within a watch for several requests at once."""


def add(event: CreatorSignalEvent, *, watch_id: int, seq: int, tier: str, first_seen_at: float, due_at: float) -> bool:
    """Store one event as pending. False: this event_id is stored already. `seq` is its place among its watch's."""
    row = event.model_dump(exclude={"subject", "routing", "metadata", "emitted_at"})
    query = Event.insert(
        **row,
        subject_json=_compact(event.subject),
        routing_json=_compact(event.routing),
        metadata_json=_compact(event.metadata),
        created_at=clock.iso(first_seen_at),
        watch_id=watch_id,
        seq=seq,
        tier=tier,
        first_seen_at=first_seen_at,
        due_at=due_at,
    )
    return bool(query.on_conflict_ignore().as_rowcount().execute())


def as_contract(row: Event, emitted_at: str | None) -> dict[str, Any]:
    """The event as it is sent. Only `emitted_at` differs from one attempt to the next."""
    return {
        "event_id": row.event_id,
        "dedupe_key": row.dedupe_key,
        "source": row.source,
        "event_type": row.event_type,
        "occurred_at": row.occurred_at,
        "received_at": row.received_at,
        "emitted_at": emitted_at,
        "subject": json.loads(row.subject_json),
        "routing": json.loads(row.routing_json),
        "metadata": json.loads(row.metadata_json),
        "raw_ref": row.raw_ref,
        "contract_version": row.contract_version,
    }


@dataclass(frozen=True)
class Claimable:
    """A pending event that may be sent now."""

    id: int
    watch_id: int | None


def claimable(tier: str, limit: int) -> list[Claimable]:
    """Pending events that may be sent now, oldest first, in order within each watch.

    An event waits while an earlier item of its watch is not an event yet, or is on its first way to the receiver. It
    does not wait for one that is being retried: then the order is lost anyway, and one bad event must not stop a watch.
    """
    query = Event.select(Event.id, Event.watch_id).where((Event.state == "pending") & (Event.tier == tier))
    if tier != UNORDERED_TIER:
        query = query.where(~_earlier_in_inbox() & ~_earlier_in_flight())
    rows = skip_locked(query.order_by(Event.due_at, Event.seq).limit(limit))
    return [Claimable(*row) for row in rows.tuples()]


def _earlier_in_inbox() -> Any:
    same_watch = (InboxItem.watch_id == Event.watch_id) & (InboxItem.state == "new")
    return fn.EXISTS(InboxItem.select(InboxItem.id).where(same_watch & (InboxItem.id < Event.seq)))


def _earlier_in_flight() -> Any:
    ahead = Event.alias()
    first_attempt = Batch.select(Batch.id).where((Batch.id == ahead.batch_id) & (Batch.attempts == 0))
    same_watch = (ahead.watch_id == Event.watch_id) & (ahead.state == "in_flight") & (ahead.tier == Event.tier)
    return fn.EXISTS(ahead.select(ahead.id).where(same_watch & (ahead.seq < Event.seq) & fn.EXISTS(first_attempt)))


def waiting(tier: str) -> tuple[int, float | None]:
    """How many are pending in a tier, and when the oldest is due."""
    row = Event.select(fn.COUNT(Event.id), fn.MIN(Event.due_at)).where(
        (Event.state == "pending") & (Event.tier == tier)
    )
    count, due_at = row.scalar(as_tuple=True)
    return int(count), due_at


def of_batch(batch_id: int) -> list[Event]:
    return list(Event.select().where(Event.batch_id == batch_id).order_by(Event.due_at, Event.seq))


def settle(ids: Sequence[int], state: str, **changes: Any) -> int:
    """Move events that are in flight to their next state. Returns how many were."""
    moved = 0
    for chunk in chunks(ids):
        query = Event.update(state=state, **changes).where(Event.id.in_(chunk) & (Event.state == "in_flight"))
        moved += query.execute()
    return moved


def revive(event_ids: Sequence[str], due_at: float) -> list[str]:
    """Bring dead or quarantined events back to pending. Returns those that were dead."""
    revived = []
    for chunk in chunks(event_ids):
        dead = Event.event_id.in_(chunk) & Event.state.in_(("dead", "quarantined"))
        revived += [row.event_id for row in Event.select(Event.event_id).where(dead)]
        Event.update(state="pending", batch_id=None, due_at=due_at).where(dead).execute()
    return revived


def counts() -> dict[str, int]:
    query = Event.select(Event.state, fn.COUNT(Event.id)).group_by(Event.state)
    found: Any = query.tuples()
    return dict(found)


def recent(limit: int) -> list[Event]:
    return list(Event.select().order_by(Event.id.desc()).limit(limit))


def page(limit: int, *, state: str | None = None, source: str | None = None, before: int | None = None) -> list[Event]:
    """Newest first; `before` is the id of the last row of the page before this one."""
    query = Event.select().order_by(Event.id.desc()).limit(limit)
    if state is not None:
        query = query.where(Event.state == state)
    if source is not None:
        query = query.where(Event.source == source)
    if before is not None:
        query = query.where(Event.id < before)
    return list(query)


def oldest_pending() -> float | None:
    """When the longest-waiting undelivered event was first seen."""
    waiting_states = Event.state.in_(("pending", "in_flight"))
    found: float | None = Event.select(fn.MIN(Event.first_seen_at)).where(waiting_states).scalar()
    return found


def is_known(key: str) -> bool:
    return bool(DedupeKey.select().where(DedupeKey.key == key).exists())


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
