"""Pause and resume delivery to a destination."""

from csi.logs import log
from csi.pipeline import destination_state
from csi.runtime import Runtime
from csi.status.destinations import known_name
from csi.store import batches, destinations
from csi.store.db import writing


def pause(rt: Runtime, name: str, reason: str) -> bool:
    """Nothing is sent to the destination until `resume`, also after restarts. False: it was paused already."""
    with writing():
        row = destinations.get(known_name(rt, name))
        destination_state.write(row, destination_state.paused(row, rt.now(), reason))
    log.info("delivery paused by the operator", destination=name, reason=reason)
    return row.paused_reason is None


def resume(rt: Runtime, name: str) -> bool:
    """Pending events are sent again, also before the receiver's Retry-After has passed. False: nothing kept them."""
    with writing():
        row, now = destinations.get(known_name(rt, name)), rt.now()
        is_throttled = destination_state.is_throttled(row, now)
        destination_state.write(row, destination_state.resumed(row))
        if is_throttled:  # its batches wait for the same time
            batches.release_waiting(name, keep=row.canary, now=now)
    log.info("delivery resumed by the operator", destination=name)
    return row.paused_reason is not None or is_throttled
