"""The work of the maintenance loop: find due rows and expired leases, renew leases, update runs; and run one step."""

import traceback

from csi.errors import CsiError, StoreError
from csi.logs import log
from csi.processing.pipeline import (
    admit,
    dead_job_actions,
    digests,
    intake,
    notify,
    provider_access,
    retention,
    runs,
    summarise,
    transcribe,
)
from csi.processing.pipeline.index_texts import index_texts
from csi.processing.receiver_database import count_after
from csi.processing.runtime import Processing, StepWake, wake_job
from csi.processing.status import WORKER
from csi.processing.store import audit, db, heartbeats, jobs, notices, providers, received_events, videos

MAX_QUEUED = 1_000
RETRY_SECONDS = 30.0
"""The wait before a step that failed with an error of ours runs again."""


def due_wakes(rt: Processing, queue_depth: int = 0) -> list[StepWake]:
    """Everything that is due now. Cheap when nothing is due: four small reads.

    A wake-up that was lost, or whose worker died, is found here. A full queue holds these wake-ups already.
    """
    wakes = []
    # False also when the receiver's database cannot be read: the other steps continue meanwhile
    try:
        has_signals = count_after(rt.settings.receiver_db, received_events.cursor(), 1) > 0
    except StoreError:
        has_signals = False
    if has_signals:
        wakes.append(StepWake("intake"))
    if rt.settings.paused or queue_depth >= MAX_QUEUED:
        return wakes
    if videos.discovered(rt.now(), 1):
        wakes.append(StepWake("admit"))
    if notices.is_due(rt.now()):
        wakes.append(StepWake("notify"))
    wakes += [StepWake("probe", name) for name in providers.due_probes(rt.now())]
    return [*wakes, *(wake_job(job_id) for job_id in jobs.due(rt.now()))]


def maintain(rt: Processing) -> list[StepWake]:
    """Every few seconds: renew leases and the heartbeat, prune the audit log, update runs, retry dead jobs."""
    now = rt.now()
    # Renewed here and not by the steps: a step may wait minutes for a provider, longer than a lease.
    with db.writing():
        jobs.renew_leases(now)
        heartbeats.record(WORKER, now, _intake_error(rt))
        audit.prune(now, 200)
    retention.remove_old_hourly(rt)
    runs.update_runs(rt)
    digests.write_due_digests(rt)
    index_texts(rt)
    return [*intake.reroute(rt), *dead_job_actions.auto_retry(rt)]


def _intake_error(rt: Processing) -> str | None:
    """Why the receiver's database cannot be read, without its path; None: it can."""
    path = rt.settings.receiver_db
    if not path.exists():
        return "the file does not exist"
    try:
        count_after(path, received_events.cursor(), 1)
    except StoreError as error:
        log.error("receiver database cannot be read", error=str(error))
        return str(error).partition(": ")[2]
    return None


def recover_claims(rt: Processing) -> None:
    """At the start of the worker: release what waits for a key or a budget, and expire the leases of a dead worker.

    PostgreSQL may have other live workers, whose leases are valid.
    """
    provider_access.prepare(rt)
    if db.is_postgres():
        return
    with db.writing():
        expired = jobs.expire_all_leases(rt.now())
    if expired:
        log.info("leases of a dead worker expired", rows=expired)


def run_step(rt: Processing, wake: StepWake) -> list[StepWake]:
    match wake.step:
        case "intake":
            return intake.intake(rt)
        case "admit":
            return admit.admit(rt)
        case "transcribe":
            return transcribe.transcribe(rt, wake.key)
        case "summarise":
            return summarise.summarise(rt, wake.key)
        case "probe":
            return provider_access.probe(rt, wake.key)
        case "notify":
            notify.notify(rt)
            return []


def release_failed_job(rt: Processing, wake: StepWake, error: Exception) -> None:
    """Release the job of a step that failed with an error of ours, so that it is due again soon.

    A full disk or a locked database may last and says nothing about the job: no crash is counted. Any other error
    is a defect of the program or of this one job: it counts as a crash, and the third one makes a dead letter.
    """
    is_environment = isinstance(error, CsiError | db.DatabaseError | OSError)
    where = "" if is_environment else "".join(traceback.format_tb(error.__traceback__)[-4:])
    log.error("step failed", step=wake.step, key=wake.key, error=f"{type(error).__name__}: {error}"[:300], where=where)
    db.drop_broken_connection()
    # Should this transaction fail, too, the lease expires and the job is due again then.
    with db.writing():
        if not is_environment:
            scope = rt.audit_scope("worker", "job", wake.key or wake.step)
            kind, words = type(error).__name__, str(error)[:300]
            facts = {"event_type": "error", "error_code": kind, "error_message": words, "stack_trace": where}
            audit.write(scope, f"step_failed:{wake.step}", "failure", rt.now(), **facts)
        jobs.release_after_error(wake.key, rt.now(), at=rt.now() + RETRY_SECONDS, crashed=not is_environment)
