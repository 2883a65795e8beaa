"""What becomes of a job whose provider gave nothing: again later, the next provider, skipped, or a dead letter."""

from typing import Any

from csi import clock
from csi.logs import log, redact
from csi.processing.documents import DeadLetterJobDocument, FailureType, Priority
from csi.processing.pipeline.retries import MAX_CRASHES, CallAgain, Dead, NextProvider, Skip, TryAgain, Verdict, judge
from csi.processing.providers.base import ProviderError
from csi.processing.runtime import Processing
from csi.processing.store import audit, dead_jobs, jobs, paid_calls, videos
from csi.processing.store.db import writing
from csi.processing.store.dead_jobs import Letter
from csi.processing.store.jobs import Job
from csi.processing.store.videos import Video
from csi.processing.wake import Wake, wake_job

AGENTS = {jobs.TRANSCRIPTION: "transcriber", jobs.SUMMARIZATION: "summarizer"}
_PAYLOAD = ("transcript_text", "transcript_json", "summary")
_STEPS: dict[FailureType, list[str]] = {
    "quota_exceeded": ["look at the provider's account: key, access and balance", "then: csi processing dlq retry"],
    "manual_intervention": [
        "look in the provider's usage whether this call was carried out and paid",
        "then: csi processing dlq retry",
    ],
    "fatal_error": ["look at final_error; a retry asks the same question again"],
}


def scope_of(rt: Processing, job: Job, video: Video) -> audit.Scope:
    days = rt.settings.retention.audit_days
    return audit.Scope(AGENTS[job.collection], video.correlation_id, "video", video.id, days)


def settle_failure(
    rt: Processing, job: Job, error: ProviderError, *, more_providers: bool = False, answered: bool = False
) -> list[Wake]:
    """One transaction: the job, its video, the letter and the audit log move together."""
    now, kind = rt.now(), job.collection.removeprefix("jobs/")
    verdict = judge(
        kind,  # type: ignore[arg-type]
        error,
        attempts=job.attempts,
        api_tries=job.api_tries,
        more_providers=more_providers,
        now=now,
        answered=answered,
    )
    with writing():
        video = videos.get(job.video_id)
        audit.write(
            scope_of(rt, job, video),
            "provider_call",
            "failure",
            now,
            event_type="api_call" if _was_call(error) else "error",
            error_code=error.code,
            error_message=str(error),
            api_response_code=error.status,
        )
        wakes = _settle(rt, job, video, error, verdict)
    rt.failpoint("failure.committed")
    log.info("job not done", job_id=job.id, error=str(error), code=error.code, follows=type(verdict).__name__)
    return wakes


def _was_call(error: ProviderError) -> bool:
    """Somebody outside was asked, whatever came of it."""
    return error.status is not None or error.code.startswith(("net_", "captions_"))


def _settle(rt: Processing, job: Job, video: Video, error: ProviderError, verdict: Verdict) -> list[Wake]:
    now, told = rt.now(), _told(job, error)
    match verdict:
        case CallAgain(at):
            jobs.settle(job, now, next_at=at, api_tries=job.api_tries + 1, **told)
            return [wake_job(job.id, at)]
        case TryAgain(at):
            made = job.attempts + 1
            waits: dict[str, Any] = {"next_retry_at": clock.iso(at)} if job.collection == jobs.TRANSCRIPTION else {}
            jobs.settle(job, now, next_at=at, attempts=made, status="retrying", attempt_count=made, **waits, **told)
            return [wake_job(job.id, at)]
        case NextProvider():
            turn = {"provider": int(job.work.get("provider", 0)) + 1, "phase": ""}
            jobs.settle(job, now, work=turn, **told)
            return [wake_job(job.id)]
        case Skip():
            jobs.settle(job, now, status="failed", attempt_count=job.attempts + 1, **told)
            videos.skip(video, redact(str(error))[:500], now)
            return []
        case Dead(failure_type, can_retry):
            bury(rt, job, video, error, failure_type, can_retry=can_retry)
            return []


def take(rt: Processing, job_id: str) -> Job | None:
    """The job, held by us; None while paused, when it is not to be had, or when it ended in quarantine just now."""
    if rt.settings.paused:
        return None
    with writing():
        job = jobs.claim(job_id, rt.now())
    if job is not None and job.crashes >= MAX_CRASHES:
        _quarantine(rt, job)
        return None
    return job


def _quarantine(rt: Processing, job: Job) -> None:
    """Its handling ended the process three times: it must not stop the line."""
    error = ProviderError(f"working on it ended the process {MAX_CRASHES} times", fault="refused", code="crash")
    with writing():
        bury(rt, job, videos.get(job.video_id), error, "fatal_error", can_retry=True, tags=["quarantined"])


def bury(
    rt: Processing,
    job: Job,
    video: Video,
    error: ProviderError,
    failure_type: FailureType,
    *,
    can_retry: bool,
    tags: list[str] | None = None,
) -> None:
    """Within a transaction: the job failed, the video failed, and a letter says why."""
    now, before = rt.now(), dead_jobs.find(job.id)
    made = job.attempts + 1
    job = jobs.settle(job, now, attempts=made, status="failed", attempt_count=made, **_told(job, error))
    if video.status != "failed":
        videos.fail(video, redact(str(error))[:500], now)
    after = now + rt.settings.dlq.retry_after if can_retry else None
    doc = _letter(job, error, failure_type, now, after, before.doc if before else None, tags)
    dead_jobs.put(Letter(doc, before.rounds if before else 0), retry_after=after, moved_at=now)
    audit.write(
        scope_of(rt, job, video),
        "dead_letter",
        "failure",
        now,
        event_type="error",
        error_code=error.code,
        error_message=str(error),
        tags=[failure_type],
    )
    log.error("job is a dead letter", job_id=job.id, video_id=video.id, error=str(error), cause=failure_type)


def _letter(
    job: Job,
    error: ProviderError,
    failure_type: FailureType,
    now: float,
    after: float | None,
    before: DeadLetterJobDocument | None,
    tags: list[str] | None,
) -> DeadLetterJobDocument:
    """One that died before keeps its first failure, its people and their notes, and rises one level."""
    moment, text = clock.iso(now), redact(str(error))[:2000]
    level = min(before.escalation_level + 1, 5) if before else 1
    payload = {name: value for name, value in job.doc.shape().items() if name not in _PAYLOAD}
    return DeadLetterJobDocument(
        job_id=job.id,
        original_collection=job.collection,
        failure_reason=error.code,
        failure_type=failure_type,
        final_error=text,
        job_type=job.collection.removeprefix("jobs/"),
        job_payload=payload,
        total_attempts=job.attempts + (before.total_attempts if before else 0),
        first_failure_at=before.first_failure_at if before else moment,
        last_attempt_at=moment,
        moved_to_dlq_at=moment,
        video_id=job.video_id,
        agent_name=AGENTS[job.collection],
        dlq_status="pending",
        assigned_to=before.assigned_to if before else None,
        resolution_notes=before.resolution_notes if before else None,
        can_retry=after is not None,
        retry_after=clock.iso(after) if after is not None else None,
        manual_steps_required=_STEPS.get(failure_type),
        priority=_priority(failure_type, level),
        tags=tags,
        escalation_level=level,
    )


def _priority(failure_type: FailureType, level: int) -> Priority:
    if level >= 4:
        return "critical"
    return "high" if failure_type in ("quota_exceeded", "manual_intervention") or level >= 2 else "medium"


def _told(job: Job, error: ProviderError) -> dict[str, Any]:
    """What the document says of it. A summary that failed may have cost something, too."""
    told: dict[str, Any] = {"error_message": redact(str(error))[:2000]}
    if job.collection == jobs.TRANSCRIPTION:
        return told | {"error_type": error.error_type}
    return told | {"estimated_cost_usd": paid_calls.spent_on(job.id)}
