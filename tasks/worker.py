"""The worker process around Huey's consumer: start, maintenance loop, reload and end."""

import signal
import sys
import threading
import time
from typing import Any

from csi import logs, systemd
from csi.config import loader
from csi.errors import CsiError
from csi.jobs import job_rescue
from csi.logs import log
from csi.pipeline import clock_check, quota_schedule, schedule
from csi.runtime import Runtime, Share, open_runtime
from csi.store import copy_marker, db, leases, watches
from csi.store.worker_lock import hold_worker_lock
from csi.worker import alerting, leader, maintenance, reload
from csi.worker.maintenance import QueueHealth
from tasks import notifier
from tasks.dispatch import dispatch, last_end

STUCK_SECONDS = 150.0
"""Every step ends within a minute, and half of the threads never read sources: with tasks in the queue, this long
without the end of any task means that none will end."""

SCHEDULER_SECONDS = 60.0
"""The scheduler reads the schedule several times a second; a locked queue may hold it up for a while."""

_stopping, _reload = threading.Event(), threading.Event()
_opening = threading.Lock()
_held: list[Runtime] = []


def runtime() -> Runtime:
    """One per process, until a reload replaces it. A task keeps the one that it began with."""
    with _opening:
        if not _held:
            _held.append(open_runtime())
        return _held[0]


def boot(threads: int) -> None:
    """Make sure that this process can and may work; an error is one sentence and its exit code."""
    try:
        _boot(threads)
    except CsiError as error:
        sys.stderr.write(f"csi: {error}\n")
        raise SystemExit(error.exit_code) from None


def _boot(threads: int) -> None:
    rt = runtime()
    rt.share = Share(threads)
    rt.stopping = _stopping.is_set
    logs.take_over("huey")
    loader.require_delivery(rt.settings)
    alerting.require_post(rt)
    if not db.is_postgres():
        hold_worker_lock(rt.settings.csi.state_dir)
    copy_marker.take_into_use()
    clock_check.begin(rt)
    maintenance.recover(rt)
    schedule.sync_watches(rt)
    schedule.warn_keyless(rt)
    schedule.warn_refused_patterns(rt)
    quota_schedule.warn_infeasible(rt)
    reload.note_start(rt)
    log.info("worker starts", instance=rt.settings.csi.instance_id, watches=len(watches.schedule()))


def start(consumer: Any) -> None:
    """Start the maintenance loop and the notifier, each in a thread of its own."""
    signal.signal(signal.SIGHUP, lambda number, frame: _reload.set())
    threading.Thread(target=_maintain, args=(consumer,), name="Maintenance", daemon=True).start()
    threading.Thread(target=notifier.watch, args=(runtime, _stopping), name="Notifier", daemon=True).start()


def has_led() -> bool:
    """This worker was the leader a moment ago."""
    return leader.has_led(runtime())


def pause() -> None:
    """Nothing new is enqueued from now on."""
    systemd.notify(systemd.STOPPING)
    _stopping.set()


def stop() -> None:
    """Release what did not finish, so that the next worker need not wait until leases expire."""
    try:
        freed = leases.release_own(runtime().now())
        log.info("worker ends", released=freed)
    except Exception:  # noqa: BLE001 the process ends: leases expire
        log.exception("leases could not be released")


def _maintain(consumer: Any) -> None:
    started, passes = runtime().now(), 0
    while not _stopping.is_set():
        try:
            if _reload.is_set():
                _take_new_config()
            _run_pass(runtime(), started, consumer, with_heartbeat=passes % maintenance.HEARTBEAT_PASSES == 0)
        except Exception:  # noqa: BLE001 the loop must outlive a locked database, a full disk, a lost server
            log.exception("rescue failed; it is tried again")
            db.drop_broken_connection()
        passes += 1
        _stopping.wait(maintenance.INTERVAL_SECONDS)


def _run_pass(rt: Runtime, started: float, consumer: Any, *, with_heartbeat: bool) -> None:
    depth = _depth(consumer.huey, loud=with_heartbeat)
    queue = QueueHealth(depth, None if depth is None else standstill(consumer, depth))
    dispatch(maintenance.run_pass(rt, queue, started, with_heartbeat=with_heartbeat))
    if leader.has_led(rt) and queue.is_usable:
        if with_heartbeat:
            job_rescue.requeue_failed_and_stuck(rt)
        dispatch(job_rescue.wake_due(rt))
    if with_heartbeat and queue.is_usable:
        notifier.note_pass()
        systemd.notify(systemd.READY, systemd.ALIVE, systemd.status(f"{depth} wake-ups in the queue"))


def _depth(huey: Any, *, loud: bool) -> int | None:
    """How many wake-ups are in the queue. None: it cannot be read, and the worker threads wait for it, too."""
    try:
        return int(huey.pending_count())
    except Exception as error:  # noqa: BLE001 sqlite3, redis and psycopg have no error in common
        if loud:
            log.warning("queue cannot be asked; what is due waits for it", error=str(error)[:300])
        return None


def standstill(consumer: Any, depth: int) -> str | None:
    """Why the tasks of this process make no progress; the heartbeat is withheld then. None: they do."""
    now = time.monotonic()
    if not consumer.scheduler.is_alive():
        return "the scheduler's thread is gone"
    if now - consumer.huey.looked_at > SCHEDULER_SECONDS:
        return "the scheduler hangs"
    if not all(thread.is_alive() for _, thread in consumer.worker_threads):
        return "a worker's thread is gone"
    if depth > 0 and now - last_end() > STUCK_SECONDS:
        return "wake-ups wait in the queue, and no task comes to its end"
    return None


def _take_new_config() -> None:
    """Between two passes, so that no pass uses half a configuration. With a database in trouble: in the next pass."""
    systemd.notify(*systemd.reloading())
    try:
        fresh = reload.reload(runtime())
        _reload.clear()
        with _opening:
            _held[:] = [fresh]
    finally:
        systemd.notify(systemd.READY)
