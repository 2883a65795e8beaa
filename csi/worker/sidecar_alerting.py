"""The sidecar evaluates alerts while no worker does, and records where it listens. Of several sidecars one does it."""

import fcntl
import threading
import time
from collections.abc import Callable
from typing import TextIO

from csi.errors import CsiError, StoreError
from csi.logs import RepeatedErrors, log
from csi.runtime import Runtime
from csi.sql import open_private_file
from csi.store import database_faults, db, heartbeats, leases
from csi.store.db import DatabaseError, writing
from csi.store.heartbeats import NOTIFIER, SIDECAR
from csi.worker import alerting
from csi.worker.unstored_alert import UnstoredAlert
from csi.worker_lock import lock_holder

FIRST_SECONDS, ROUND_SECONDS = 1.0, 5.0
QUIET_SECONDS = 40.0
QUIET_ROUNDS = 3
"""The worker evaluates alerts every 15 s. Where it did not for QUIET_SECONDS in so many rounds in a row, in which this
process could write, it is gone: after about a minute. One look would not do: after a suspend, or when a lock is
released, this process may be the first to run."""

RESUME_ROUNDS = 9
"""More rounds after the wall clock jumped ahead: a machine that was suspended has much to do at first."""

BEAT_SECONDS = 60.0
LEASE_SECONDS = 30.0
ROLE = "alerts"


class AlertStandby:
    """One per sidecar process; a thread calls `run_round` every ROUND_SECONDS."""

    def __init__(self, address: str | None = None, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._address = address
        self._started_at: float | None = None
        self._beat_at = float("-inf")
        self._quiet = 0
        self._looked_at: tuple[float, float] | None = None
        """By the wall clock, and by one that stops while the machine is suspended."""
        self._unstored = UnstoredAlert()
        self._errors = RepeatedErrors()
        self._lock: TextIO | None = None

    def run_round(self, rt: Runtime) -> None:
        """One round. Never raises for a database that cannot be used: the operator is notified of it."""
        try:
            with db.connection():
                self._evaluate_where_no_worker_does(rt)
        except (DatabaseError, StoreError) as error:
            self._quiet, self._beat_at = 0, float("-inf")
            if (counted := self._errors.count(database_faults.identify(error).text)) is not None:
                log.warning("sidecar cannot use the database; retrying", error=str(error)[:300], **counted)
            self._unstored.failed(rt, error, may_send=self._may_send(rt))
        finally:
            db.close_writer()  # the sidecar keeps no connection open: its file may be replaced by a backup

    def _evaluate_where_no_worker_does(self, rt: Runtime) -> None:
        now, notifier_at = rt.now(), heartbeats.last_beat(NOTIFIER)
        is_quiet = notifier_at is None or abs(now - notifier_at) > QUIET_SECONDS
        if is_quiet or now - self._beat_at >= BEAT_SECONDS:
            self._started_at = self._started_at or now
            with writing():
                heartbeats.write(SIDECAR, now, self._started_at, address=self._address)
            self._beat_at = now
            self._unstored.worked(rt)
        # Since the round before, or its clock was set ahead: the worker is as surprised as we are
        before, self._looked_at = self._looked_at, (now, self._steady())
        was_suspended = before is not None and (now - before[0]) - (self._looked_at[1] - before[1]) > QUIET_SECONDS
        if was_suspended:
            self._quiet = -RESUME_ROUNDS
        self._quiet = self._quiet + 1 if is_quiet else 0
        if self._quiet > QUIET_ROUNDS and leases.hold_leadership(ROLE, now, LEASE_SECONDS):
            if self._quiet == QUIET_ROUNDS + 1:
                log.warning("no worker evaluates alerts; the sidecar does")
            alerting.evaluate(rt, is_worker=False)

    def _may_send(self, rt: Runtime) -> bool:
        """From memory only where no worker runs, which sends the message itself, and only one sidecar of this state
        directory."""
        if not db.is_postgres() and lock_holder(rt.settings.csi.state_dir) is not None:
            return False
        try:
            self._lock = self._lock or open_private_file(rt.settings.csi.state_dir / "sidecar.lock")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a read-only or full disk: a message too many is better than none
        return True


def run_in_background(standby: AlertStandby, runtime: Callable[[], Runtime], stopping: threading.Event) -> None:
    """In a thread that ends soon after `stopping` is set."""

    def loop() -> None:
        pause = FIRST_SECONDS
        while not stopping.wait(pause):
            pause = ROUND_SECONDS
            try:
                standby.run_round(runtime())
            except CsiError:
                continue  # the runtime cannot be opened: `/readyz` and the log say why
            except Exception:  # noqa: BLE001 the thread must survive an error of the notification library
                log.exception("alerts could not be evaluated; retrying")

    threading.Thread(target=loop, name="AlertStandby", daemon=True).start()
