"""What makes processing safe: find rows that are due and whom nobody woke, or whose holder died."""

import traceback

from csi.errors import CsiError, StoreError
from csi.logs import log
from csi.processing.pipeline import admit, dead_letters, intake, notify, runs, summarise, transcribe
from csi.processing.receiver_database import waiting
from csi.processing.runtime import Processing
from csi.processing.store import audit, db, heartbeats, jobs, notices, signals, videos
from csi.processing.wake import Wake, wake_job

WORKER = "processing"
CROWDED = 1_000
PAUSE = 30.0
"""Seconds before a step that ended in an error of ours is tried again."""


def rescue(rt: Processing, queue_depth: int = 0) -> list[Wake]:
    """Everything that is due now. Cheap when nothing is: four small reads."""
    wakes = []
    if _has_come(rt):
        wakes.append(Wake("intake"))
    if rt.settings.paused or queue_depth >= CROWDED:
        return wakes
    if videos.discovered(rt.now(), 1):
        wakes.append(Wake("admit"))
    if notices.is_due(rt.now()):
        wakes.append(Wake("notify"))
    return [*wakes, *(wake_job(job_id) for job_id in jobs.due(rt.now()))]


def _has_come(rt: Processing, *, aloud: bool = False) -> bool:
    """False also where the receiver's file cannot be read: everything else goes on meanwhile."""
    try:
        return waiting(rt.settings.receiver_db, signals.cursor(), 1) > 0
    except StoreError as error:
        if aloud:
            log.error("no signals are taken over", error=str(error))
        return False


def keep_up(rt: Processing) -> list[Wake]:
    """Every few seconds: leases and heartbeat renewed, dead jobs tried again, runs kept, old entries pruned."""
    now = rt.now()
    with db.writing():
        jobs.renew_own(now)
        heartbeats.beat(WORKER, now)
        audit.prune(now, 200)
    _has_come(rt, aloud=True)
    runs.keep_runs(rt)
    return [*intake.reroute(rt), *dead_letters.retry_by_itself(rt)]


def recover(rt: Processing) -> None:
    """At the start of the only worker: what a dead one held is free again, and counted as its crash."""
    if db.is_postgres():
        return
    with db.writing():
        freed = jobs.release_all(rt.now())
    if freed:
        log.info("work of a worker that died is taken up again", rows=freed)


def step(rt: Processing, wake: Wake) -> list[Wake]:
    """Run one wake-up: the one place that knows which function a step is."""
    match wake.step:
        case "intake":
            return intake.intake(rt)
        case "admit":
            return admit.admit(rt)
        case "transcribe":
            return transcribe.transcribe(rt, wake.key)
        case "summarise":
            return summarise.summarise(rt, wake.key)
        case "notify":
            notify.notify(rt)
            return []


def give_back(rt: Processing, wake: Wake, error: Exception) -> None:
    """A step ended in an error that no provider made. Its job is due again soon instead of being held for ever.

    A full disk or a locked database is nobody's fault and may last. Anything else is a fault of the program or of this
    one job: it counts like a crash of the process, and the third one is the dead letter.
    """
    ours = isinstance(error, CsiError | db.DatabaseError | OSError)
    where = "" if ours else "".join(traceback.format_tb(error.__traceback__)[-4:])
    log.error("step failed", step=wake.step, key=wake.key, error=f"{type(error).__name__}: {error}"[:300], where=where)
    db.drop_broken_connection()
    with db.writing():
        jobs.let_go(wake.key, rt.now(), at=rt.now() + PAUSE, crashed=not ours)
