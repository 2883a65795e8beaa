"""The address at which the sidecar listens."""

from csi.runtime import Runtime
from csi.store import heartbeats
from csi.store.heartbeats import SIDECAR

FRESH_SECONDS = 150.0
"""A sidecar writes its heartbeat every minute."""


def sidecar_address(rt: Runtime) -> str | None:
    """The address that a running sidecar recorded: PORT in its environment may differ from the configuration. None: no
    sidecar runs, or it did not say."""
    heartbeat = heartbeats.latest(SIDECAR)
    return heartbeat.address if heartbeat is not None and abs(rt.now() - heartbeat.beat_at) < FRESH_SECONDS else None
