"""What makes the walk safe: find rows whose wake-up was lost, whose holder died, or whose time has come."""

from dataclasses import dataclass, replace

from csi.emitter.destination import LANES
from csi.logs import log
from csi.pipeline import clock_check, destination_state, disk_guard, flush
from csi.pipeline.redrive import redrive as redrive
from csi.pipeline.schedule import plan
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import batches, data_version, db, destinations, heartbeats, inbox, leases
from csi.store.db import writing
from csi.store.heartbeats import WORKER

QUEUED = "queue_depth"
CLOCK_SLACK = 30.0
STILL_AFTER, STILL_LOOK = 1.0, 1.0
"""Seconds without a write after which the pulse looks at the rows only now and then, and how often that is."""

CROWDED = 2_000
"""With this many tasks in the queue a row waits because it is not its turn, not because its wake-up was lost."""


@dataclass(frozen=True)
class Stillness:
    """What the pulse remembers: the state of the database, since when it is the same, and the last look at its rows."""

    version: int | None
    since: float
    looked_at: float


def rescue(rt: Runtime, queue_depth: int = 0) -> list[Wake]:
    """Everything that is due now and that nobody seems to have woken. Cheap when nothing is."""
    rt.memo[QUEUED] = queue_depth
    disk_guard.keep_log_short(rt)
    wakes = [*plan(rt, horizon=0), *_flush_due(rt)]
    if queue_depth < CROWDED:
        wakes += _overdue(rt)
    return wakes


def is_still(rt: Runtime) -> bool:
    """Nobody wrote for a while, so that only what waits for its time can be due: a look a second is enough for it."""
    version, now = data_version.version(), rt.now()
    seen = rt.memo.get("stillness")
    if seen is None or version is None or version != seen.version or now < seen.looked_at:
        rt.memo["stillness"] = Stillness(version, now, now)
        return False
    if now - seen.since < STILL_AFTER or now - seen.looked_at >= STILL_LOOK:
        rt.memo["stillness"] = replace(seen, looked_at=now)
        return False
    return True


def recover(rt: Runtime) -> int:
    """At start: what a dead worker held is free again. Only where no other worker can be alive."""
    with writing():
        if forgotten := batches.put_back_forgotten():
            log.error("events of batches that are over are pending again", batches=forgotten)
    if db.is_postgres():
        return 0
    freed = leases.release_all(rt.now())
    if freed:
        log.info("work of a worker that died is taken up again", rows=freed)
    return freed


def set_clock_right(rt: Runtime) -> None:
    """A heartbeat from the future: the clock went back, and what waits for a time must not wait for the old one."""
    now = rt.now()
    back = (heartbeats.last_beat(WORKER) or now) - now
    if back > CLOCK_SLACK:
        log.warning("the clock went back", seconds=round(back), rows=leases.shift_times(back, now))


def beat(rt: Runtime, started_at: float) -> None:
    """The worker is alive, and so many wake-ups waited when it looked last. Beat after `set_clock_right`: the last beat
    is how a jump is noticed."""
    now = rt.now()
    with writing():
        heartbeats.note_gap(WORKER, now)
        heartbeats.beat(WORKER, now, started_at, queued=rt.memo.get(QUEUED), clock_json=clock_check.measure(rt))
    disk_guard.watch_log(rt)


def _flush_due(rt: Runtime) -> list[Wake]:
    if not rt.settings.features.delivery:
        return []
    now = rt.now()
    ready = [
        it
        for it in rt.destinations.values()
        if destination_state.current(destinations.get(it.name), now) in ("accepting", "half_open")
    ]
    return [
        Wake("flush", f"{destination.name}/{tier}", urgent=tier == "urgent")
        for destination in ready
        for tier in LANES
        if flush.is_due(rt, destination, tier, now)
    ]


def _overdue(rt: Runtime) -> list[Wake]:
    now = rt.now()
    return [
        *(Wake("ingest", item_id) for item_id in inbox.overdue(now)),
        *(Wake("deliver", batch_id) for batch_id in batches.overdue(now)),
    ]
