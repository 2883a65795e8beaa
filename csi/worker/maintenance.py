"""The maintenance loop, one pass at a time: rescue rows, renew the leader's lease, write the heartbeat.

Everything here needs no task queue: `tasks.worker` runs the passes in a thread and enqueues the wake-ups.
"""

from dataclasses import dataclass

from csi.admin import event_subscriptions
from csi.emitter.destination import LANES
from csi.logs import log
from csi.pipeline import clock_check, disk_guard, live_start, receiver_test, redrive, rescue, subscribe, watch_icons
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import backlog_samples, batches, db, heartbeats, leases
from csi.store.db import writing
from csi.store.heartbeats import WORKER
from csi.worker import leader

INTERVAL_SECONDS = 1.0
HEARTBEAT_SECONDS = 5.0
"""The heartbeat is written, and dead letters are looked at, in the first pass after so long: passes may be slow."""

CLOCK_SLACK = 30.0
SAMPLE_SECONDS = 30.0


@dataclass(frozen=True)
class QueueHealth:
    """What a pass knows of the queue. `depth` None: it cannot be read. `problem`: why no task makes progress."""

    depth: int | None
    problem: str | None = None

    @property
    def is_usable(self) -> bool:
        return self.depth is not None and self.problem is None


def run_pass(rt: Runtime, queue: QueueHealth, started_at: float, *, with_heartbeat: bool) -> list[Wake]:
    """Only the leader rescues. A worker whose tasks make no progress releases the lead and withholds its heartbeat, so
    that health checks and the service manager notice; one whose queue is unreachable is alive and waits for it."""
    rt.use_managed_destinations()
    leads, wakes = leader.leads(rt, able=queue.is_usable), list[Wake]()
    if with_heartbeat and leads:
        shift_times_after_clock_change(rt)
        wakes += redrive.redrive(rt)
        wakes += receiver_test.due_tests(rt)
        wakes += subscribe.due_requests(rt)
        wakes += live_start.due_checks(rt)
        wakes += watch_icons.due_lookups(rt)
        event_subscriptions.remove_expired(rt)
        sample_backlog(rt)
    if with_heartbeat and queue.problem is None and (leads or queue.depth is None):
        write_heartbeat(rt, started_at)
    if leads:
        wakes += rescue.rescue(rt, queue.depth or 0)
    if with_heartbeat and queue.problem is not None:
        log.error("worker stalled; heartbeat withheld", error=queue.problem)
    return wakes


def sample_backlog(rt: Runtime) -> None:
    """Every half a minute: how much waits for each destination, and how much it accepted since."""
    now, last = rt.now(), rt.process.backlog_sampled_at
    if 0 <= now - last < SAMPLE_SECONDS:
        return
    with writing():
        backlog_samples.delete_old(now)
        for name in rt.destinations:
            backlog_samples.take(name, LANES, max(last, now - 2 * SAMPLE_SECONDS), now)
    rt.process.backlog_sampled_at = now


def recover(rt: Runtime) -> int:
    """At start: release what a dead worker held. On PostgreSQL other workers may be alive: there leases expire."""
    with writing():
        if forgotten := batches.put_back_forgotten():
            log.error("events of settled batches are pending again", batches=forgotten)
    if db.is_postgres():
        return 0
    freed = leases.release_all(rt.now())
    if freed:
        log.info("rows of a worker that died are released", rows=freed)
    return freed


def shift_times_after_clock_change(rt: Runtime) -> None:
    """A heartbeat from the future shows that the clock was set back: what waits for a time waits as long as it was
    meant to. Called before the heartbeat is written, which would hide the jump."""
    now = rt.now()
    back = (heartbeats.last_beat(WORKER) or now) - now
    if back > CLOCK_SLACK:
        log.warning("clock set back; due times shifted", seconds=round(back), rows=leases.shift_times(back, now))


def write_heartbeat(rt: Runtime, started_at: float) -> None:
    """The worker is alive, with so many wake-ups in the queue when it looked last."""
    now = rt.now()
    with writing():
        heartbeats.note_gap(WORKER, now)
        heartbeats.write(WORKER, now, started_at, queued=rt.process.queue_depth, clock_json=clock_check.measure(rt))
    disk_guard.watch_log(rt)
