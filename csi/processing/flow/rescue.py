"""What makes processing safe: find rows that are due and whom nobody woke, or whose holder died."""

from csi.logs import log
from csi.processing.flow import admit, intake, letters, notify, runs, summarise, transcribe
from csi.processing.runtime import Processing
from csi.processing.source import newest
from csi.processing.store import audit, beats, db, jobs, notices, signals, videos
from csi.processing.wake import Wake, wake_job

WORKER = "processing"
CROWDED = 1_000


def rescue(rt: Processing, queue_depth: int = 0) -> list[Wake]:
    """Everything that is due now. Cheap when nothing is: four small reads."""
    wakes = []
    if newest(rt.settings.receiver_db) > signals.cursor():
        wakes.append(Wake("intake"))
    if rt.settings.paused or queue_depth >= CROWDED:
        return wakes
    if videos.discovered(rt.now(), 1):
        wakes.append(Wake("admit"))
    if notices.is_due(rt.now()):
        wakes.append(Wake("notify"))
    return [*wakes, *(wake_job(job_id) for job_id in jobs.due(rt.now()))]


def keep_up(rt: Processing) -> list[Wake]:
    """Every few seconds: leases and heartbeat renewed, dead jobs tried again, runs kept, old entries pruned."""
    now = rt.now()
    with db.writing():
        jobs.renew_own(now)
        beats.beat(WORKER, now)
        audit.prune(now, 200)
    runs.keep_runs(rt)
    return [*intake.reroute(rt), *letters.retry_by_itself(rt)]


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
