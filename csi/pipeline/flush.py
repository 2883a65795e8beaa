"""Step four: pending events become batches, when enough wait or one has waited long enough."""

from csi.config.settings import STREAM
from csi.emitter.destination import Destination
from csi.pipeline import destination_state, redrive
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import batches, destinations, outbox
from csi.store.db import writing
from csi.store.destinations import Endpoint
from csi.store.outbox import Entry

URGENT_IN_FLIGHT = 16
"""Urgent batches that may wait or travel at once: enough to fill the wire, little enough to forget nothing."""


def flush(rt: Runtime, lane: str) -> list[Wake]:
    """Open the batches that are due in this lane (`destination/tier`) and wake their delivery."""
    name, _, tier = lane.rpartition("/")
    destination, now = rt.destinations.get(name), rt.now()
    if destination is None or not is_due(rt, destination, tier, now):
        return []
    if destination_state.look(destinations.get(name), now) == "probe" and redrive.comes_first(rt, name):
        return [Wake("probe", name)]
    with writing():
        return _wakes(_open(destination, tier, now), tier)


def fill(rt: Runtime, lane: str) -> list[Wake]:
    """The same for a receiver that has just taken something, as part of the caller's transaction."""
    name, _, tier = lane.rpartition("/")
    destination, now = rt.destinations[name], rt.now()
    return _wakes(_open(destination, tier, now), tier) if is_due(rt, destination, tier, now) else []


def _wakes(opened: list[int], tier: str) -> list[Wake]:
    return [Wake("deliver", batch_id, urgent=tier == "urgent") for batch_id in opened]


def is_due(rt: Runtime, destination: Destination, tier: str, now: float) -> bool:
    """Enough events wait, or the oldest has waited long enough."""
    if not rt.settings.features.delivery:
        return False
    oldest = outbox.oldest_due(destination.name, tier)
    if oldest is None:
        return False
    return oldest <= now or outbox.has_pending(destination.name, tier, destination.tiers.of(tier).batch_size)


def _open(destination: Destination, tier: str, now: float) -> list[int]:
    outbox.hold_lane(destination.name, tier)  # two at once would not see each other's batches, and break the order
    endpoint = destinations.get(destination.name)
    match destination_state.look(endpoint, now):
        case "open":
            room = _room(destination, endpoint, tier)
            return _open_all(destination, tier, room, now) if room else []
        case "probe":
            return _open_probe(destination, endpoint, tier, now)
        case _:
            return []


def _open_all(destination: Destination, tier: str, room: int, now: float) -> list[int]:
    size = destination.batch_size(tier)
    if size == 1:
        find = outbox.claimable if tier in outbox.UNORDERED else outbox.heads
        entries = find(destination.name, tier, room)
        return [_create(destination, [entry], tier, now) for entry in entries]
    opened: list[int] = []
    while len(opened) < room and (entries := outbox.claimable(destination.name, tier, size)):
        opened += [_create(destination, part, tier, now) for part in _parts(entries)]
    return opened


def _parts(entries: list[Entry]) -> list[list[Entry]]:
    """What may travel together, and each of those that have died in company before."""
    together = [entry for entry in entries if not entry.alone]
    return [part for part in [*([entry] for entry in entries if entry.alone), together] if part]


def _open_probe(destination: Destination, endpoint: Endpoint, tier: str, now: float) -> list[int]:
    """While the receiver is away, one event asks whether it is back."""
    entries = outbox.claimable(destination.name, tier, 1)
    if not entries:
        return []
    destination_state.note_probe(endpoint, now)
    return [_create(destination, entries, tier, now, probe=True)]


def _room(destination: Destination, endpoint: Endpoint, tier: str) -> int:
    """Backpressure: what the receiver has not answered yet limits what is claimed next.

    Where each event travels alone, a lane that is more than half full is left as it is: to look for the first event of
    every watch after each answer would cost more than the event.
    """
    most = {
        "urgent": URGENT_IN_FLIGHT,
        STREAM: destination.max_streaming_requests,
    }.get(tier, 2 * destination.max_concurrent_requests)
    limit = destination_state.limit(endpoint, most)
    room = max(limit - batches.unsettled_count(destination.name, tier), 0)
    return room if destination.batch_size(tier) > 1 or 2 * room >= limit else 0


def _create(destination: Destination, entries: list[Entry], tier: str, now: float, *, probe: bool = False) -> int:
    return batches.create(entries, destination=destination.name, tier=tier, now=now, probe=probe)
