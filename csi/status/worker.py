"""Is the worker alive? The one rule that every surface uses."""

from dataclasses import dataclass

from csi.runtime import Runtime
from csi.store import heartbeats
from csi.store.heartbeats import WORKER, LastHeartbeat

FRESH_SECONDS = heartbeats.GAP_SECONDS
"""The uptime objective counts a longer silence as downtime, so liveness does, too."""


@dataclass(frozen=True)
class WorkerStatus:
    """The worker's last heartbeat, and what it says at this moment. `heartbeat` None: no worker ever ran here."""

    now: float
    heartbeat: LastHeartbeat | None

    @property
    def age(self) -> float | None:
        """Seconds since the last heartbeat; negative after the clock was set back."""
        return None if self.heartbeat is None else self.now - self.heartbeat.beat_at

    @property
    def is_alive(self) -> bool:
        # After the clock was set back the heartbeat lies in the future, which proves as little as an old one.
        return self.age is not None and abs(self.age) <= FRESH_SECONDS

    @property
    def problem(self) -> str | None:
        """Why the worker does not count as alive; None: it does."""
        if self.age is None:
            return "no worker has ever run on this database"
        if self.is_alive:
            return None
        if self.age < 0:
            return f"the worker's last heartbeat is {-self.age:.0f} s in the future: the clock was set back"
        return f"the worker's last heartbeat was {self.age:.0f} s ago"


def worker_status(rt: Runtime) -> WorkerStatus:
    return WorkerStatus(rt.now(), heartbeats.latest(WORKER))
