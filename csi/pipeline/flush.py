"""Step four: pending events become batches, when enough of them wait or one has waited long enough."""

from collections.abc import Sequence

from csi.config.delivery_settings import STREAM
from csi.dlq.dead_letters import PROBE_CANDIDATES
from csi.emitter.destination import LANES, Destination
from csi.pipeline import destination_state, redrive
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import batches, destinations, outbox
from csi.store.db import writing
from csi.store.destinations import DestinationRow
from csi.store.outbox import Entry

URGENT_IN_FLIGHT = 16
"""Unsettled urgent batches of one destination: enough to keep every slot busy, few enough to keep memory small."""


def flush(rt: Runtime, lane: str) -> list[Wake]:
    """Open the batches that are due in this lane (`destination/tier`) and wake their delivery. A lane that is not due
    yet is scheduled: the wake-up flushes it at its time."""
    name, _, tier = lane.rpartition("/")
    if name not in rt.destinations or not rt.settings.features.delivery:
        return []
    # Checked here without the write lock, and by `open_due` again with it: most flushes find nothing that is due.
    oldest, now = outbox.oldest_due(name, tier), rt.now()
    if oldest is None:
        return []
    if (quiet_until := rt.destinations[name].quiet_until(now)) is not None:
        return _schedule(rt, lane, quiet_until)
    if not _is_due(rt.destinations[name], tier, oldest, now):
        return _schedule(rt, lane, oldest)
    row = destinations.get(name)
    # An empty batch tests the receiver first where dead letters are sent before what is pending, and where a canary
    # waits for its next attempt: it has failed already, and an event that is sent meanwhile should find a receiver that
    # answers.
    is_half_open = destination_state.current(row, now) == "half_open"
    if is_half_open and (redrive.comes_first(rt, name) or batches.is_unsettled(row.canary)):
        return [Wake("probe", name)]
    with writing():
        return open_due(rt, lane)


def flush_due_lanes(rt: Runtime, wakes: Sequence[Wake]) -> list[Wake]:
    """Flush the lanes among these wake-ups here instead of through the queue, which would cost more than the step.
    Returns the other wake-ups and those of the batches that were opened."""
    lanes = dict.fromkeys(str(wake.key) for wake in wakes if wake.step == "flush" and wake.at is None)
    opened = [wake for lane in lanes for wake in flush(rt, lane)]
    return [*(wake for wake in wakes if wake.step != "flush" or wake.at is not None), *opened]


def is_due(destination: Destination, tier: str, now: float) -> bool:
    """Enough events wait, or the oldest has waited long enough, and no quiet hours have begun."""
    if destination.quiet_until(now) is not None:
        return False
    oldest = outbox.oldest_due(destination.name, tier)
    return oldest is not None and _is_due(destination, tier, oldest, now)


def _is_due(destination: Destination, tier: str, oldest: float, now: float) -> bool:
    """With `batch_size` 1, the default of the urgent tier, one pending event is enough: it is due at once, whatever
    `max_delay_seconds` says."""
    # The configured size, not `destination.batch_size`: a cap by `max_events_per_request` divides a full batch into
    # several requests, but does not make the lane due earlier.
    return oldest <= now or outbox.has_pending(destination.name, tier, destination.tiers.of(tier).batch_size)


def open_due(rt: Runtime, lane: str) -> list[Wake]:
    """`flush` as part of the caller's transaction."""
    name, _, tier = lane.rpartition("/")
    destination, now = rt.destinations[name], rt.now()
    oldest = outbox.oldest_due(name, tier) if rt.settings.features.delivery else None
    if oldest is None:
        return []
    if (quiet_until := destination.quiet_until(now)) is not None:
        return _schedule(rt, lane, quiet_until)
    if not _is_due(destination, tier, oldest, now):
        return _schedule(rt, lane, oldest)
    outbox.lock_lane(name, tier)  # two transactions at once would not see each other's batches, and break the order
    row = destinations.get(name)
    match destination_state.current(row, now):
        case "accepting":
            opened = _open_all(destination, tier, _free_capacity(destination, row, tier, now), now)
        case "half_open" if batches.is_unsettled(row.canary):
            return [Wake("probe", name)]
        case "half_open":
            opened = _open_probe(destination, row, tier, now)
        case "throttled":
            return _schedule(rt, lane, row.throttled_until)
        case "circuit_open":
            return _schedule(rt, lane, row.next_probe_at)
        case "paused":
            return []  # no time to schedule: after `csi delivery resume` the maintenance loop finds the lane
    return [Wake("deliver", batch_id, urgent=tier == "urgent") for batch_id in opened]


def _schedule(rt: Runtime, lane: str, at: float | None) -> list[Wake]:
    """One wake-up per lane: a flush that is scheduled earlier schedules the next one itself."""
    now, scheduled = rt.now(), rt.process.scheduled_flushes.get(lane)
    if at is None or at <= now or (scheduled is not None and now < scheduled <= at):
        return []
    rt.process.scheduled_flushes[lane] = at
    return [Wake("flush", lane, at=at, urgent=lane.endswith("/urgent"))]


def _open_all(destination: Destination, tier: str, room: int, now: float) -> list[int]:
    size = destination.batch_size(tier)
    if size == 1 and room:
        find = outbox.claimable if tier in outbox.UNORDERED else outbox.heads
        entries = find(destination.name, tier, room)
        return [_create(destination, [entry], tier, now) for entry in entries]
    opened: list[int] = []
    while len(opened) < room and (entries := outbox.claimable(destination.name, tier, size)):
        # An event that died in a batch with others is sent alone.
        parts = [[entry] for entry in entries if entry.alone] + [[entry for entry in entries if not entry.alone]]
        opened += [_create(destination, part, tier, now) for part in parts if part]
    return opened


def open_probe(rt: Runtime, row: DestinationRow) -> list[Wake]:
    """One pending event of any lane tests a receiver that answered an empty batch. Part of the caller's transaction."""
    for tier in LANES:
        if opened := _open_probe(rt.destinations[row.destination], row, tier, rt.now()):
            return [Wake("deliver", batch_id, urgent=tier == "urgent") for batch_id in opened]
    return []


def _open_probe(destination: Destination, row: DestinationRow, tier: str, now: float) -> list[int]:
    """While the circuit is half-open, one event tests the receiver."""
    refused = redrive.tried_probes(destination.name).events_refused
    entries = outbox.claimable(destination.name, tier, PROBE_CANDIDATES if refused else 1)
    if not entries:
        return []
    # After one that was refused, perhaps for its own fault, the youngest, the second oldest, the second youngest …
    place = refused // 2 if refused % 2 == 0 else -(refused // 2) - 1
    entry = entries[place % len(entries)]
    # In the transaction that opens the probe: a second flush sees the new `next_probe_at` and opens none.
    destination_state.write(row, destination_state.probed(row, now))
    return [_create(destination, [entry], tier, now, probe=True)]


def _free_capacity(destination: Destination, row: DestinationRow, tier: str, now: float) -> int:
    """Backpressure: unsettled batches limit how many are opened next.

    Where each event travels alone, a lane that is more than half full is left as it is: to search the first event of
    every watch after each answer would cost more than the event.
    """
    most = {
        "urgent": URGENT_IN_FLIGHT,
        STREAM: 2 * destination.max_streaming_requests,  # so that a thread that is free finds the next one
    }.get(tier, 2 * destination.max_concurrent_requests)
    limit = destination_state.concurrency(row, most)
    room = max(limit - batches.unsettled_count(destination.name, tier, now), 0)
    return room if destination.batch_size(tier) > 1 or 2 * room >= limit else 0


def _create(destination: Destination, entries: list[Entry], tier: str, now: float, *, probe: bool = False) -> int:
    return batches.create(entries, destination=destination.name, tier=tier, now=now, probe=probe)
