"""The worker process: its boot, its pulse and its end."""

import sys
import threading
from functools import cache

from csi import logs
from csi.errors import CsiError
from csi.flow import pace, plan
from csi.flow import rescue as rescue_step
from csi.ingester import config_file
from csi.jobs import rescue as jobs
from csi.logs import log
from csi.runtime import Runtime, Share, open_runtime
from csi.store import db, leases, watches
from csi.store.lock import hold_worker_lock
from tasks.dispatch import dispatch

PULSE_SECONDS = 0.25
REDRIVE_EVERY = 20
"""Pulses between two looks at the dead letters, and between two heartbeats: five seconds."""

_stopping = threading.Event()


@cache
def runtime() -> Runtime:
    """One per process: tasks share its HTTP connections and adapters."""
    return open_runtime()


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
    config_file.require_delivery(rt.settings)
    if not db.is_postgres():
        hold_worker_lock(rt.settings.csi.state_dir)
    rescue_step.recover(rt)
    plan.sync_watches(rt)
    pace.warn_infeasible(rt)
    log.info("worker starts", instance=rt.settings.csi.instance_id, watches=len(watches.schedule()))


def start() -> None:
    """Begin the pulse: due rows are found twice a second, whatever happens to the queue."""
    threading.Thread(target=_pulse, name="Pulse", daemon=True).start()


def pause() -> None:
    """Nothing new is woken from here on."""
    _stopping.set()


def stop() -> None:
    """Give back what did not finish, so that the next worker need not wait for leases to run out."""
    try:
        freed = leases.release_own(runtime().now())
        log.info("worker ends", released=freed)
    except Exception:  # noqa: BLE001 the end of the process: leases run out by themselves
        log.exception("leases could not be released")


def _pulse() -> None:
    rt, started, count = runtime(), runtime().now(), 0
    while not _stopping.is_set():
        try:
            _beat(rt, started, slow=count % REDRIVE_EVERY == 0)
        except Exception:  # noqa: BLE001 the pulse must outlive a locked database, a full disk, a lost server
            log.exception("rescue failed; it is tried again")
            db.drop_broken_connection()
        count += 1
        _stopping.wait(PULSE_SECONDS)


def _beat(rt: Runtime, started: float, *, slow: bool) -> None:
    from huey_config import huey

    if slow:
        rescue_step.set_clock_right(rt)
        rescue_step.beat(rt, started)
        dispatch(rescue_step.redrive(rt))
        jobs.mend(rt)
    dispatch([*rescue_step.rescue(rt, huey.pending_count()), *jobs.wake_due(rt)])
