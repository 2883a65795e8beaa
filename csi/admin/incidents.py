"""Acknowledge incidents: problems that stay until the operator acknowledges them."""

from csi.errors import CsiError
from csi.logs import log
from csi.runtime import Runtime
from csi.store import incidents
from csi.store.db import writing
from csi.store.incidents import Incident


class NoSuchIncident(CsiError):
    """There is no incident of this number that is not acknowledged."""


def acknowledge(rt: Runtime, number: int, by: str) -> list[Incident]:
    """The incident that was acknowledged. NoSuchIncident, where there is none."""
    with writing():
        found = incidents.acknowledge(number, by, rt.now())
        if found is None:
            raise NoSuchIncident(f"there is no incident {number}, or it is acknowledged already; see `csi problems`")
    return _logged([found], by)


def acknowledge_all(rt: Runtime, by: str) -> list[Incident]:
    """Those that were acknowledged: none, where there is nothing to acknowledge."""
    with writing():
        found = incidents.acknowledge_all(by, rt.now())
    return _logged(found, by)


def _logged(found: list[Incident], by: str) -> list[Incident]:
    for one in found:
        log.info("incident acknowledged", incident=one.id, problem=one.problem, subject=one.subject, by=by)
    return found
