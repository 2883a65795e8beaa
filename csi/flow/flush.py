"""Step four: pending events become batches, when enough wait or one has waited long enough."""

from csi.flow import gate
from csi.flow.wake import Wake
from csi.runtime import Runtime
from csi.store import batches, endpoints, events
from csi.store.db import writing
from csi.store.events import Claimable

URGENT_IN_FLIGHT = 64
"""Urgent batches that may wait or travel at once: enough to fill the wire, little enough to forget nothing."""


def flush(rt: Runtime, tier: str) -> list[Wake]:
    """Open the batches that are due in this tier and wake their delivery."""
    now = rt.now()
    if not is_due(rt, tier, now):
        return []
    with writing():
        state = gate.look(endpoints.get(), now)
        if state == "probe":
            opened = _open_probe(tier, now)
        else:
            opened = _open_all(rt, tier, now) if state == "open" else []
    return [Wake("deliver", batch_id, urgent=tier == "urgent") for batch_id in opened]


def is_due(rt: Runtime, tier: str, now: float) -> bool:
    """Enough events wait, or the oldest has waited long enough."""
    if not rt.settings.features.delivery:
        return False
    waiting, oldest_due = events.waiting(tier)
    enough = rt.settings.delivery.priority_behavior.of(tier).batch_size
    return waiting >= enough or (oldest_due is not None and oldest_due <= now)


def _open_all(rt: Runtime, tier: str, now: float) -> list[int]:
    delivery = rt.settings.delivery
    size = min(delivery.priority_behavior.of(tier).batch_size, delivery.max_events_per_request)
    room = _room(rt, tier)
    if size == 1:
        rows = _first_per_watch(events.claimable(tier, 2 * room))[:room]
        return [_create([row], tier, now) for row in rows]
    opened: list[int] = []
    while len(opened) < room and (rows := events.claimable(tier, size)):
        opened.append(_create(rows, tier, now))
    return opened


def _open_probe(tier: str, now: float) -> list[int]:
    """While the receiver is away, one event asks whether it is back."""
    rows = events.claimable(tier, 1)
    if not rows:
        return []
    gate.note_probe(endpoints.get(), now)
    return [_create(rows, tier, now, probe=True)]


def _room(rt: Runtime, tier: str) -> int:
    """Backpressure: what the receiver has not answered yet limits what is claimed next."""
    limit = URGENT_IN_FLIGHT if tier == "urgent" else 2 * rt.settings.delivery.max_concurrent_requests
    return max(limit - batches.unsettled_count(endpoints.DEFAULT, tier), 0)


def _first_per_watch(rows: list[Claimable]) -> list[Claimable]:
    """Of each watch only the earliest: the next follows when it was answered, so that order is kept."""
    first: dict[int | None, Claimable] = {}
    for row in rows:
        first.setdefault(row.watch_id, row)
    return list(first.values())


def _create(rows: list[Claimable], tier: str, now: float, *, probe: bool = False) -> int:
    ids = [row.id for row in rows]
    return batches.create(ids, destination=endpoints.DEFAULT, tier=tier, now=now, probe=probe)
