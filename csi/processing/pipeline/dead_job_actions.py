"""What operators do with dead jobs: assign, note, resolve, abandon and retry them; and automatic retries."""

from typing import Any, Literal

from csi import clock
from csi.errors import CsiError
from csi.logs import log, redact
from csi.processing.collection_models import DeadLetterJobDocument
from csi.processing.runtime import Processing, StepWake, wake_job
from csi.processing.sanitize import plain_line, plain_text
from csi.processing.states import RESUMES_AS, Stage
from csi.processing.store import audit, dead_jobs, jobs, videos
from csi.processing.store.db import writing
from csi.processing.store.dead_jobs import DeadJob

AGENT = "operator"
AUTO_RETRY = "auto-retry"
CHUNK = 20


def get(job_id: str) -> DeadJob:
    dead_job = dead_jobs.find(job_id)
    if dead_job is None:
        raise CsiError(f"no dead letter {job_id}; see: csi processing dlq list --status all")
    return dead_job


def assign(rt: Processing, job_id: str, person: str) -> DeadLetterJobDocument:
    name = plain_line(redact(person), 200)
    if not name:
        raise CsiError(f"{job_id}: the assignee has no name; pass a name")
    with writing():
        dead_job = _get_open(job_id)
        _audit(rt, dead_job, "dlq_assign", f"to {name}")
        return dead_jobs.change(dead_job, dlq_status="investigating", assigned_to=name).doc


def note(rt: Processing, job_id: str, text: str) -> DeadLetterJobDocument:
    _refuse_secrets(text)
    with writing():
        dead_job = get(job_id)
        _audit(rt, dead_job, "dlq_note", text)
        return dead_jobs.change(dead_job, resolution_notes=_with_note(dead_job, text, rt.now())).doc


def close(rt: Processing, job_id: str, status: Literal["resolved", "abandoned"], text: str) -> DeadLetterJobDocument:
    """Resolved by other means: the video stays failed. Abandoned: the video is skipped and cannot be retried."""
    _refuse_secrets(text)
    with writing():
        dead_job, now = _get_open(job_id), rt.now()
        video = videos.find(str(dead_job.doc.video_id)) if status == "abandoned" else None
        if video is not None and video.status == "failed":
            videos.skip(video, video.doc.last_error or text, now)
        _audit(rt, dead_job, f"dlq_{status}", text)
        moment, notes = clock.iso(now), _with_note(dead_job, text, now)
        return dead_jobs.change(
            dead_job, dlq_status=status, resolved_at=moment, resolution_notes=notes, can_retry=False
        ).doc


def retry(rt: Processing, job_id: str, *, force: bool = False, by: str = AGENT) -> list[StepWake]:
    """Queue the job again, from where its work resumes. Paid calls that have an answer are not repeated.

    The dead letter is resolved when the job has succeeded; should it fail again, it is pending again.
    """
    now = rt.now()
    with writing():
        dead_job = _get_open(job_id)
        if not force:
            after = dead_job.doc.retry_after
            if not dead_job.doc.can_retry:
                reason = dead_job.doc.failure_reason
                raise CsiError(f"{dead_job.doc.job_id}: {reason} will fail again; retry it anyway with --force")
            if after and clock.parse(after) > now and dead_job.doc.failure_type == "quota_exceeded":
                raise CsiError(f"{dead_job.doc.job_id}: not before {after}; retry it now with --force")
        job, video = jobs.find(job_id), videos.get(str(dead_job.doc.video_id))
        if job is None or video.status != "failed":
            raise CsiError(f"{job_id}: its video is {video.status}; only a failed video can be retried")
        jobs.reopen(job, now)
        videos.move(video, RESUMES_AS[video.doc.processing_stage], now)
        dead_jobs.change(
            dead_job,
            rounds=dead_job.rounds + 1 if by == AUTO_RETRY else dead_job.rounds,
            retried_at=now,
            resolution_notes=_with_note(dead_job, f"retried by {by}", now),
        )
        _audit(rt, dead_job, "dlq_retry", by)
    return [wake_job(job_id)]


def reopen(rt: Processing, job_id: str) -> DeadLetterJobDocument:
    """Undo `resolved` or `abandoned`: it is pending again. The video of an abandoned one is failed again."""
    with writing():
        dead_job, now = get(job_id), rt.now()
        was, job = dead_job.doc.dlq_status, jobs.find(job_id)
        if was not in ("resolved", "abandoned"):
            raise CsiError(f"dead letter {job_id} is {was}; only a resolved or abandoned one can be reopened")
        if job is None or job.doc.status != "failed":
            raise CsiError(f"dead letter {job_id}: its job has succeeded since; there is nothing to undo")
        video = videos.get(str(dead_job.doc.video_id))
        if video.status == "skipped":
            stage: Stage = "transcription" if job.collection == jobs.TRANSCRIPTION else "summarization"
            videos.move(videos.rediscover(video, now), "failed", now, stage=stage)
        _audit(rt, dead_job, "dlq_reopen", was)
        notes = _with_note(dead_job, f"reopened by {AGENT}", now)
        fields: dict[str, Any] = {
            "dlq_status": "pending",
            "resolved_at": None,
            "resolution_notes": notes,
            "can_retry": True,
        }
        return dead_jobs.change(dead_job, **fields).doc


def auto_retry(rt: Processing) -> list[StepWake]:
    """Retry jobs that failed because of an outage, after `dlq.retry_after`, up to `dlq.max_rounds` times."""
    settings = rt.settings.dlq
    if not settings.auto_retry or rt.settings.paused:
        return []
    wakes: list[StepWake] = []
    for job_id in dead_jobs.retriable(rt.now(), rounds=settings.max_rounds, limit=CHUNK):
        try:
            wakes += retry(rt, job_id, by=AUTO_RETRY)
        except CsiError as error:  # its video changed since: without can_retry it is not selected again
            log.info("dead job cannot be retried", job_id=job_id, error=str(error))
            with writing():
                dead_jobs.change(get(job_id), can_retry=False)
    if wakes:
        log.info("dead jobs retried", jobs=len(wakes))
    return wakes


def _get_open(job_id: str) -> DeadJob:
    dead_job = get(job_id)
    if dead_job.doc.dlq_status not in ("pending", "investigating"):
        raise CsiError(
            f"dead letter {job_id} is {dead_job.doc.dlq_status} already; csi processing dlq reopen undoes that"
        )
    if dead_job.retried_at is not None:
        raise CsiError(f"dead letter {job_id} is being retried since {clock.iso(dead_job.retried_at)}")
    return dead_job


def _refuse_secrets(text: str) -> None:
    if redact(text) != text:
        raise CsiError("the note contains something that looks like a secret; leave it out, nothing was stored")


def _with_note(dead_job: DeadJob, text: str, now: float) -> str:
    before = f"{dead_job.doc.resolution_notes}\n" if dead_job.doc.resolution_notes else ""
    return f"{before}{clock.iso(now)} {plain_text(redact(text), 10_000)}"[-20_000:]


def _audit(rt: Processing, dead_job: DeadJob, action: str, text: str) -> None:
    video = videos.find(str(dead_job.doc.video_id))
    scope = rt.audit_scope(AGENT, "video", dead_job.doc.video_id, video.correlation_id if video else None)
    audit.write(
        scope, action, "success", rt.now(), data_summary=text, tool_name=dead_job.doc.job_id, user_id=rt.operator
    )
