"""Of several workers on one database one plans for all: finds what is due, lost or left behind, and wakes it."""

from csi.logs import log
from csi.runtime import Runtime
from csi.store import db, leadership

PLANNER = "planner"


def leads(rt: Runtime, *, able: bool = True) -> bool:
    """Whether this worker plans now. Not `able` (its queue is away): it lets go, so that another can.

    On SQLite there is one worker (csi.store.worker_lock). Two planners at once do no harm, only the work twice: every
    row is claimed by a conditional update.
    """
    if not db.is_postgres():
        return True
    held = able and leadership.hold(PLANNER, rt.now())
    if held != rt.memo.get(PLANNER, False):
        rt.memo[PLANNER] = held
        log.info("this worker plans for all" if held else "another worker plans", worker=db.OWNER)
    return held


def has_led(rt: Runtime) -> bool:
    """What `leads` said last, without asking the database."""
    return not db.is_postgres() or bool(rt.memo.get(PLANNER, False))
