"""Whether the worker is alive: the one rule that every surface uses."""

import json
from dataclasses import dataclass, replace

from csi.runtime import Runtime
from csi.store import db, heartbeats
from csi.store.heartbeats import NOTIFIER, WORKER, LastHeartbeat
from csi.worker_lock import lock_holder

FRESH_SECONDS = heartbeats.GAP_SECONDS
"""The uptime objective counts a longer silence as downtime, so liveness does, too."""


@dataclass(frozen=True)
class WorkerStall:
    """The stall that the worker reported. `reason` None: tasks complete."""

    reason: str | None = None
    since: float | None = None
    hung: tuple[tuple[str, float], ...] = ()
    """Name of the task of each thread that hangs, and since when."""


@dataclass(frozen=True)
class WorkerStatus:
    """The worker's last heartbeat, and what it says at this moment. `heartbeat` None: no worker ever ran here."""

    now: float
    heartbeat: LastHeartbeat | None
    process: int | None = None
    """The process that holds the worker's lock while the worker is silent; None: none does, or it is not known."""
    notifier_at: float | None = None
    """When the worker last evaluated alerts."""
    back_at: float | None = None
    """When its last downtime ended, be it one of the whole machine."""

    @property
    def stall(self) -> WorkerStall:
        return read_stall(self.heartbeat)

    @property
    def age(self) -> float | None:
        """Seconds since the last heartbeat; negative after the clock was set back."""
        return None if self.heartbeat is None else self.now - self.heartbeat.beat_at

    @property
    def is_alive(self) -> bool:
        # After the clock was set back the heartbeat lies in the future, which proves as little as an old one.
        return self.age is not None and abs(self.age) <= FRESH_SECONDS and self.stall.reason is None

    @property
    def problem(self) -> str | None:
        """Why the worker does not count as alive; None: it does."""
        if self.age is None:
            return "no worker has ever run on this database"
        if self.is_alive:
            return None
        if abs(self.age) <= FRESH_SECONDS:
            return "the worker makes no progress"
        if self.age < 0:
            return f"the worker's last heartbeat is {-self.age:.0f} s in the future: the clock was set back"
        return f"the worker's last heartbeat was {self.age:.0f} s ago"


def worker_status(rt: Runtime) -> WorkerStatus:
    now, heartbeat = rt.now(), heartbeats.latest(WORKER)
    back_at = heartbeats.last_downtime_end(WORKER)
    status = WorkerStatus(now, heartbeat, notifier_at=heartbeats.last_beat(NOTIFIER), back_at=back_at)
    if status.is_alive or heartbeat is None or db.is_postgres():  # on PostgreSQL it may run on another machine
        return status
    return replace(status, process=lock_holder(rt.settings.csi.state_dir))


def read_stall(heartbeat: LastHeartbeat | None) -> WorkerStall:
    if heartbeat is None or heartbeat.stall_json is None:
        return WorkerStall()
    stored = json.loads(heartbeat.stall_json)
    hung = tuple((one["task"], one["since"]) for one in stored["hung"])
    return WorkerStall(stored["reason"], stored["since"], hung)
