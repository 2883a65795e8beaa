"""The worker process: its boot, its pulse, its reload and its end."""

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
from csi.pipeline import clock_check, quota_schedule, rescue, schedule
from csi.runtime import Runtime, Share, open_runtime
from csi.store import copy_marker, db, leases, watches
from csi.store.worker_lock import hold_worker_lock
from csi.worker import alerting, leader, reload
from tasks import notifier
from tasks.dispatch import dispatch, last_end

PULSE_SECONDS = 0.25
REDRIVE_EVERY = 20
"""Pulses between two looks at the dead letters, and between two heartbeats: five seconds."""

STUCK_SECONDS = 150.0
"""Every step ends within a minute, and half of the threads never read sources: with work in the queue, this long
without the end of any task means that none will end."""

SCHEDULER_SECONDS = 60.0
"""The scheduler looks once a second; a queue in trouble may hold it up for a while."""

_stopping, _reload = threading.Event(), threading.Event()
_opening = threading.Lock()
_held: list[Runtime] = []


def runtime() -> Runtime:
    """One per process, until a reload puts another in its place. A task goes on with the one it began with."""
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
    rescue.recover(rt)
    schedule.sync_watches(rt)
    schedule.warn_keyless(rt)
    schedule.warn_refused_patterns(rt)
    quota_schedule.warn_infeasible(rt)
    reload.note_start(rt)
    log.info("worker starts", instance=rt.settings.csi.instance_id, watches=len(watches.schedule()))


def start(consumer: Any) -> None:
    """Begin the pulse: due rows are found four times a second, at rest once, whatever happens to the queue."""
    signal.signal(signal.SIGHUP, lambda number, frame: _reload.set())
    threading.Thread(target=_pulse, args=(consumer,), name="Pulse", daemon=True).start()
    threading.Thread(target=notifier.watch, args=(runtime, _stopping), name="Lookout", daemon=True).start()


def has_led() -> bool:
    """This worker planned for all of them a moment ago."""
    return leader.has_led(runtime())


def pause() -> None:
    """Nothing new is woken from here on."""
    systemd.notify(systemd.STOPPING)
    _stopping.set()


def is_stopping() -> bool:
    return _stopping.is_set()


def stop() -> None:
    """Give back what did not finish, so that the next worker need not wait for leases to run out."""
    try:
        freed = leases.release_own(runtime().now())
        log.info("worker ends", released=freed)
    except Exception:  # noqa: BLE001 the end of the process: leases run out by themselves
        log.exception("leases could not be released")


def _pulse(consumer: Any) -> None:
    started, count = runtime().now(), 0
    while not _stopping.is_set():
        try:
            if _reload.is_set():
                _take_new_config()
            slow = count % REDRIVE_EVERY == 0
            if slow or not rescue.is_still(runtime()):
                _beat(runtime(), started, consumer, slow=slow)
        except Exception:  # noqa: BLE001 the pulse must outlive a locked database, a full disk, a lost server
            log.exception("rescue failed; it is tried again")
            db.drop_broken_connection()
        count += 1
        _stopping.wait(PULSE_SECONDS)


def _beat(rt: Runtime, started: float, consumer: Any, *, slow: bool) -> None:
    from huey_config import huey

    depth = _depth(huey, loud=slow)
    ill = None if depth is None else standstill(consumer, depth)
    leads = leader.leads(rt, able=depth is not None and ill is None)
    if slow and leads:
        rescue.set_clock_right(rt)
        dispatch(rescue.redrive(rt))
        job_rescue.requeue_failed_and_stuck(rt)
    if slow and ill is None and (leads or depth is None):
        rescue.beat(rt, started)
    if leads:
        dispatch([*rescue.rescue(rt, depth or 0), *job_rescue.wake_due(rt)])
    if slow and ill is not None:
        log.error("worker stands still and gives no sign of life", error=ill)
    elif slow and depth is not None:
        notifier.note_pulse()
        systemd.notify(systemd.READY, systemd.ALIVE, systemd.status(f"{depth} wake-ups wait"))


def _depth(huey: Any, *, loud: bool) -> int | None:
    """How many wake-ups wait. None: the queue is away, and its workers wait for it, too."""
    try:
        return int(huey.pending_count())
    except Exception as error:  # noqa: BLE001 sqlite3, redis and psycopg have no error in common
        if loud:
            log.warning("queue cannot be asked; what is due waits for it", error=str(error)[:300])
        return None


def standstill(consumer: Any, depth: int) -> str | None:
    """Why this process does not do its work. Then nobody hears that it lives: no service manager, no health page.
    None: the threads are there, and what waits in the queue is being done."""
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
    """Between two beats, so that nothing is planned by half a configuration. A database in trouble: next time."""
    systemd.notify(*systemd.reloading())
    try:
        fresh = reload.reload(runtime())
        _reload.clear()
        with _opening:
            _held[:] = [fresh]
    finally:
        systemd.notify(systemd.READY)
