"""The leader: of several workers on one database, one plans for all and rescues their rows."""

from csi.logs import log
from csi.runtime import Runtime
from csi.store import db, leases

PLANNER = "planner"


def leads(rt: Runtime, *, able: bool = True) -> bool:
    """Whether this worker is the leader now. Not `able` (its queue is unreachable): it does not renew its lease.

    On SQLite there is one worker (csi.worker_lock). Two leaders at once do the work twice and no harm: every row
    is claimed by a conditional update.
    """
    if not db.is_postgres():
        return True
    is_leader = able and leases.hold_leadership(PLANNER, rt.now())
    if is_leader != rt.process.is_leader:
        rt.process.is_leader = is_leader
        log.info("this worker is the leader" if is_leader else "another worker is the leader", worker=db.OWNER)
    return is_leader


def has_led(rt: Runtime) -> bool:
    """What `leads` returned last, without reading the database."""
    return not db.is_postgres() or rt.process.is_leader
