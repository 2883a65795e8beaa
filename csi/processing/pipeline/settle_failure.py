"""The retry policy (spec 001), and what it does to a job whose provider failed: repeat, retry, skip or dead letter."""

from dataclasses import dataclass, replace
from typing import Any

from csi import clock
from csi.logs import log, redact
from csi.processing.collection_models import DeadLetterJobDocument, FailureType, Priority
from csi.processing.pipeline.later import TRANSCRIPT, asked_again_at, may_come_later
from csi.processing.pipeline.provider_access import note_success, pause, provider_of, wait
from csi.processing.providers.base import ProviderError
from csi.processing.providers.captions import NOT_BEGUN
from csi.processing.runtime import DAY, Processing, StepWake, wake_job
from csi.processing.store import audit, dead_jobs, jobs, paid_calls, providers, videos
from csi.processing.store.audit import AuditScope
from csi.processing.store.db import writing
from csi.processing.store.dead_jobs import DeadJob
from csi.processing.store.jobs import ProcessingJob
from csi.processing.store.videos import ProcessingVideo

TRANSCRIPTION_WAITS = (60.0, 120.0, 240.0)
SUMMARIZATION_WAITS = (30.0, 60.0, 120.0)
API_WAITS = (10.0, 20.0, 40.0, 80.0, 160.0)
"""An API call is repeated after these waits before the job's attempt counts as failed."""

MAX_CRASHES = 3

AGENTS = {jobs.TRANSCRIPTION: "transcriber", jobs.SUMMARIZATION: "summarizer"}
_LARGE_FIELDS = ("transcript_text", "transcript_json", "summary")
_MANUAL_STEPS: dict[FailureType, list[str]] = {
    "quota_exceeded": ["raise budget.daily_usd, or skip the video", "then: csi processing dlq retry"],
    "manual_intervention": [
        "check in the provider's usage whether this call was carried out and paid",
        "then: csi processing dlq retry",
    ],
    "fatal_error": ["read final_error; a retry sends the same request again"],
}


@dataclass(frozen=True)
class RepeatCall:
    """Repeat the same call at this time; no attempt of the job is used."""

    at: float


@dataclass(frozen=True)
class NextAttempt:
    """The next attempt of the job at this time."""

    at: float


@dataclass(frozen=True)
class NextProvider:
    """This provider has no transcript; call the next one."""


@dataclass(frozen=True)
class AskLater:
    """No provider has a transcript yet: ask all of them again at this time. No attempt is used."""

    at: float


@dataclass(frozen=True)
class SkipJob:
    """No provider has a transcript."""


@dataclass(frozen=True)
class DeadLetterJob:
    """The job becomes a dead letter."""

    failure_type: FailureType
    can_retry: bool


@dataclass(frozen=True)
class PauseProvider:
    """The provider refuses every call: it is paused, and the job waits without using an attempt."""


FailureVerdict = RepeatCall | NextAttempt | NextProvider | AskLater | SkipJob | DeadLetterJob | PauseProvider


def judge(
    job: ProcessingJob,
    error: ProviderError,
    now: float,
    *,
    more_providers: bool = False,
    answered: bool = False,
    ask_again_at: float | None = None,
) -> FailureVerdict:
    """The verdict on a failure. Pure. `answered`: the model's paid answer is no summary; another answer may be one.
    `ask_again_at`: when the transcript that does not exist yet is asked for again."""
    if error.fault in ("absent", "refused") and more_providers:
        return NextProvider()
    if error.fault == "absent":
        return SkipJob() if ask_again_at is None else AskLater(ask_again_at)
    if error.fault == "account":
        return PauseProvider()
    if error.fault == "quota":
        return DeadLetterJob("quota_exceeded", can_retry=True)
    if error.fault == "refused" and not answered:
        return DeadLetterJob("fatal_error", can_retry=False)
    if not answered and job.api_tries < len(API_WAITS):
        return RepeatCall(now + max(API_WAITS[job.api_tries], error.retry_after or 0))
    waits = TRANSCRIPTION_WAITS if job.collection == jobs.TRANSCRIPTION else SUMMARIZATION_WAITS
    if job.attempts < len(waits):
        return NextAttempt(now + max(waits[job.attempts], error.retry_after or 0))
    # A paid call without an answer that was repeated in vain: a person looks at what was paid.
    is_unknown = answered and error.code == "outcome_unknown"
    return DeadLetterJob("manual_intervention" if is_unknown else "max_retries", can_retry=True)


def job_scope(rt: Processing, job: ProcessingJob, video: ProcessingVideo) -> AuditScope:
    return rt.video_scope(AGENTS[job.collection], video)


def settle_failure(
    rt: Processing, job: ProcessingJob, error: ProviderError, *, more_providers: bool = False, answered: bool = False
) -> list[StepWake]:
    """One transaction: the job, its video, the dead letter and the audit log change together."""
    provider, now = provider_of(rt, job), rt.now()
    later = None
    if may_come_later(error, is_free=provider in rt.free):
        has_begun = error.code != NOT_BEGUN
        if not has_begun:
            job = replace(job, work=job.work | {"not_begun": True})
        elif job.work.get("not_begun"):  # what was a premiere when it was published is a new video now
            job = replace(job, work=job.work | {"not_begun": False, "available_at": now})
        video = videos.get(job.video_id)
        later = asked_again_at(rt, video, job.work.get("available_at"), now, has_begun=has_begun)
    verdict = judge(job, error, now, more_providers=more_providers, answered=answered, ask_again_at=later)
    sent = error.status is not None or error.code.startswith(("net_", "captions_"))
    kind = "api_call" if sent else "error"
    with writing():
        video = videos.get(job.video_id)
        outcome = "skipped" if isinstance(verdict, AskLater) else "failure"
        facts: dict[str, Any] = {"event_type": kind, "api_response_code": error.status}
        if error.call is not None:
            facts |= error.call.audit_fields()
        _audit_failure(rt, job, video, error, "provider_call", outcome, **facts)
        if error.fault in ("transient", "unknown") or answered:
            providers.record_failure(provider, error.cause, rt.now())
        elif error.fault in ("absent", "refused") and error.status is not None:
            note_success(rt, provider, is_paid=False)  # it answered about this input, so it accepts our key
        wakes = _apply_verdict(rt, job, video, error, verdict)
    rt.failpoint("failure.committed")
    log.info("job failed", job_id=job.id, error=str(error), code=error.code, verdict=type(verdict).__name__)
    return wakes


def _apply_verdict(
    rt: Processing, job: ProcessingJob, video: ProcessingVideo, error: ProviderError, verdict: FailureVerdict
) -> list[StepWake]:
    now, fields = rt.now(), _error_fields(job, error)
    if isinstance(verdict, RepeatCall | NextAttempt):
        videos.amend(video, now, last_error=fields["error_message"][:500], error_count=(video.doc.error_count or 0) + 1)
    if isinstance(verdict, RepeatCall | NextAttempt | PauseProvider):
        fields["work"] = {"first_failure_at": job.work.get("first_failure_at") or clock.iso(now)}
    match verdict:
        case RepeatCall(at):
            jobs.settle(job, now, next_at=at, api_tries=job.api_tries + 1, **fields)
            return [wake_job(job.id, at)]
        case NextAttempt(at):
            attempts = job.attempts + 1
            if job.collection == jobs.TRANSCRIPTION:
                fields["next_retry_at"] = clock.iso(at)
            jobs.settle(job, now, next_at=at, attempts=attempts, status="retrying", attempt_count=attempts, **fields)
            return [wake_job(job.id, at)]
        case NextProvider():
            jobs.settle(job, now, work={"provider": int(job.work.get("provider", 0)) + 1, "phase": ""}, **fields)
            return [wake_job(job.id)]
        case AskLater(at):
            fields |= {"status": "queued", "next_retry_at": clock.iso(at)}
            jobs.settle(job, now, next_at=at, waits_for=TRANSCRIPT, work={"provider": 0, "phase": ""}, **fields)
            return [wake_job(job.id, at)]
        case SkipJob():
            jobs.settle(job, now, status="failed", attempt_count=job.attempts + 1, **fields)
            videos.skip(video, redact(str(error))[:500], now)
            dead_jobs.resolve_retried(job.id, now, "abandoned")  # its retry found nothing to transcribe
            return []
        case PauseProvider():
            provider = provider_of(rt, job)
            pause(rt, provider, error)
            wait(rt, job, provider, **fields)
            return []
        case DeadLetterJob(failure_type, can_retry):
            move_to_dead_letters(rt, job, video, error, failure_type, can_retry=can_retry, is_counted=True)
            return []


def claim_job(rt: Processing, job_id: str) -> ProcessingJob | None:
    """Claim the job. None while paused, when it cannot be claimed, or when it is quarantined now."""
    if rt.settings.paused:
        return None
    # The claim commits on its own: should this step end the process, the next claim finds the token and counts it.
    with writing():
        job = jobs.claim(job_id, rt.now())
    if job is None or job.crashes < MAX_CRASHES:
        return job
    error = ProviderError(f"the process ended {MAX_CRASHES} times while it worked on this job", "refused", "crash")
    with writing():
        video = videos.get(job.video_id)
        move_to_dead_letters(rt, job, video, error, "fatal_error", can_retry=True, tags=["quarantined"])
    return None


def move_to_dead_letters(
    rt: Processing,
    job: ProcessingJob,
    video: ProcessingVideo,
    error: ProviderError,
    failure_type: FailureType,
    *,
    can_retry: bool,
    tags: list[str] | None = None,
    is_counted: bool = False,
) -> None:
    """Within a transaction: job and video fail, and a dead letter with the cause is stored.

    A job that was dead before keeps its first failure, assignee and notes, and rises one level. `is_counted`: the
    audit log has the failed call already, and one failure is one error.
    """
    now, previous = rt.now(), dead_jobs.find(job.id)
    before = previous.doc if previous else None
    attempts = job.attempts + 1
    job = jobs.settle(job, now, attempts=attempts, status="failed", attempt_count=attempts, **_error_fields(job, error))
    if video.status != "failed":
        videos.fail(video, redact(str(error))[:500], now)
    rounds = previous.rounds if previous else 0
    wait_seconds = min(rt.settings.dlq.retry_after * 2.0**rounds, max(DAY, rt.settings.dlq.retry_after))
    retry_after = now + wait_seconds if can_retry else None
    level = min(before.escalation_level + 1, 5) if before else 1
    priority: Priority = "high" if failure_type in ("quota_exceeded", "manual_intervention") or level >= 2 else "medium"
    doc = DeadLetterJobDocument(
        job_id=job.id,
        original_collection=job.collection,
        failure_reason=error.code,
        failure_type=failure_type,
        final_error=redact(str(error))[:2000],
        job_type=job.collection.removeprefix("jobs/"),
        job_payload={name: value for name, value in job.doc.shape().items() if name not in _LARGE_FIELDS},
        total_attempts=job.attempts + (before.total_attempts if before else 0),
        first_failure_at=_first_failure(job, before, now),
        last_attempt_at=clock.iso(now),
        moved_to_dlq_at=clock.iso(now),
        video_id=job.video_id,
        agent_name=AGENTS[job.collection],
        dlq_status="pending",
        assigned_to=before.assigned_to if before else None,
        resolution_notes=before.resolution_notes if before else None,
        can_retry=can_retry,
        retry_after=clock.iso(retry_after) if retry_after is not None else None,
        manual_steps_required=_MANUAL_STEPS.get(failure_type),
        priority="critical" if level >= 4 else priority,
        tags=tags,
        escalation_level=level,
    )
    dead_jobs.put(DeadJob(doc, rounds), retry_after=retry_after, moved_at=now)
    outcome = "partial" if is_counted else "failure"
    _audit_failure(rt, job, video, error, "dead_letter", outcome, event_type="error", tags=[failure_type])
    log.error("job is a dead letter", job_id=job.id, video_id=video.id, error=str(error), cause=failure_type)


def _first_failure(job: ProcessingJob, before: DeadLetterJobDocument | None, now: float) -> str:
    """Of this failure: a dead letter that was resolved since belongs to an earlier one."""
    if before is not None and before.dlq_status in ("pending", "investigating"):
        return before.first_failure_at
    return str(job.work.get("first_failure_at") or clock.iso(now))


def _audit_failure(
    rt: Processing,
    job: ProcessingJob,
    video: ProcessingVideo,
    error: ProviderError,
    action: str,
    outcome: str = "failure",
    **fields: Any,
) -> None:
    failure = {"error_code": error.code, "error_message": str(error), **fields}
    audit.write(job_scope(rt, job, video), action, outcome, rt.now(), **failure)


def _error_fields(job: ProcessingJob, error: ProviderError) -> dict[str, Any]:
    """The error in the job's document. A summary that failed may have cost money, too."""
    fields: dict[str, Any] = {"error_message": redact(str(error))[:2000]}
    if job.collection == jobs.TRANSCRIPTION:
        return fields | {"error_type": error.error_type}
    return fields | {"estimated_cost_usd": paid_calls.spent_on(job.id)}
