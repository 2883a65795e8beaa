"""Pause and resume delivery to a destination."""

from csi.logs import log
from csi.pipeline import destination_state
from csi.runtime import Runtime
from csi.status.destinations import known_name
from csi.store import destinations
from csi.store.db import writing


def pause(rt: Runtime, name: str, reason: str) -> bool:
    """Nothing is sent to the destination until `resume`, also after restarts. False: it was paused already."""
    with writing():
        row = destinations.get(known_name(rt, name))
        destination_state.write(row, destination_state.paused(row, rt.now(), reason))
    log.info("delivery paused by the operator", destination=name, reason=reason)
    return row.paused_reason is None


def resume(rt: Runtime, name: str) -> bool:
    """Pending events are sent again. False: the destination was not paused."""
    with writing():
        row = destinations.get(known_name(rt, name))
        destination_state.write(row, destination_state.resumed(row))
    log.info("delivery resumed by the operator", destination=name)
    return row.paused_reason is not None
