"""What people do about dead jobs: look, take over, write down, try again, give up."""

from csi import clock
from csi.errors import CsiError
from csi.logs import log, redact
from csi.processing.documents import DeadLetterJobDocument
from csi.processing.runtime import Processing
from csi.processing.sanitize import plain_line, plain_text
from csi.processing.states import RESUMES_AS
from csi.processing.store import audit, dead_jobs, jobs, videos
from csi.processing.store.db import writing
from csi.processing.store.dead_jobs import Letter
from csi.processing.wake import Wake, wake_job

AGENT = "operator"
SELF = "auto-retry"
CHUNK = 20


class NoSuchLetter(CsiError):
    """There is no dead letter of that name."""


def get(job_id: str) -> Letter:
    found = dead_jobs.find(job_id)
    if found is None:
        raise NoSuchLetter(f"no dead letter {job_id}; see: csi processing dlq list --status all")
    return found


def assign(rt: Processing, job_id: str, person: str) -> DeadLetterJobDocument:
    name = plain_line(redact(person), 200)
    if not name:
        raise CsiError(f"{job_id}: who looks into it? Give a name")
    with writing():
        letter = _open(job_id)
        _write(rt, letter, "dlq_assign", f"to {name}")
        return dead_jobs.change(letter, dlq_status="investigating", assigned_to=name).doc


def note(rt: Processing, job_id: str, text: str) -> DeadLetterJobDocument:
    with writing():
        letter = get(job_id)
        _write(rt, letter, "dlq_note", text)
        return dead_jobs.change(letter, resolution_notes=_added(letter, text, rt.now())).doc


def resolve(rt: Processing, job_id: str, text: str) -> DeadLetterJobDocument:
    """Settled by other means. The video stays failed: what it lacks, it lacks."""
    return _close(rt, job_id, "resolved", text)


def abandon(rt: Processing, job_id: str, text: str) -> DeadLetterJobDocument:
    """Given up: the video is skipped, and no retry brings it back."""
    with writing():
        video = videos.find(str(get(job_id).doc.video_id))
        if video is not None and video.status == "failed":
            videos.skip(video, video.doc.last_error or text, rt.now())
        return _close(rt, job_id, "abandoned", text)


def retry(rt: Processing, job_id: str, *, force: bool = False, by: str = AGENT) -> list[Wake]:
    """Back to where its work resumes. What was paid and answered is not asked for again."""
    now = rt.now()
    with writing():
        letter = _open(job_id)
        _refuse_early(letter, now, force=force)
        job, video = jobs.find(job_id), videos.get(str(letter.doc.video_id))
        if job is None or video.status != "failed":
            raise CsiError(f"{job_id}: its video is {video.status}, so there is nothing to try again")
        jobs.reopen(job, now)
        videos.move(video, RESUMES_AS[video.doc.processing_stage], now)
        rounds = letter.rounds + 1 if by == SELF else letter.rounds
        noted = _added(letter, f"tried again by {by}", now)
        dead_jobs.change(
            letter, rounds=rounds, dlq_status="resolved", resolved_at=clock.iso(now), resolution_notes=noted
        )
        _write(rt, letter, "dlq_retry", by)
    return [wake_job(job_id)]


def retry_by_itself(rt: Processing) -> list[Wake]:
    """Jobs that died of somebody else's outage, when it may be over."""
    settings = rt.settings.dlq
    if not settings.auto_retry or rt.settings.paused:
        return []
    found = dead_jobs.retriable(rt.now(), rounds=settings.max_rounds, limit=CHUNK)
    wakes = [wake for job_id in found for wake in _retry_or_leave(rt, job_id)]
    if wakes:
        log.info("dead jobs are tried again", jobs=len(wakes))
    return wakes


def _retry_or_leave(rt: Processing, job_id: str) -> list[Wake]:
    try:
        return retry(rt, job_id, by=SELF)
    except CsiError as error:  # its video moved on: a person may look, but nothing is to be done
        log.info("dead job cannot be tried again", job_id=job_id, error=str(error))
        with writing():
            dead_jobs.change(get(job_id), can_retry=False)
        return []


def _close(rt: Processing, job_id: str, status: str, text: str) -> DeadLetterJobDocument:
    with writing():
        letter = _open(job_id)
        _write(rt, letter, f"dlq_{status}", text)
        noted = _added(letter, text, rt.now())
        return dead_jobs.change(
            letter, dlq_status=status, resolved_at=clock.iso(rt.now()), resolution_notes=noted, can_retry=False
        ).doc


def _open(job_id: str) -> Letter:
    letter = get(job_id)
    if letter.doc.dlq_status not in ("pending", "investigating"):
        raise CsiError(f"dead letter {job_id} is {letter.doc.dlq_status} already")
    return letter


def _refuse_early(letter: Letter, now: float, *, force: bool) -> None:
    after = letter.doc.retry_after
    if force:
        return
    if not letter.doc.can_retry:
        raise CsiError(
            f"{letter.doc.job_id}: {letter.doc.failure_reason} will fail again; --force tries it all the same"
        )
    if after and clock.parse(after) > now and letter.doc.failure_type == "quota_exceeded":
        raise CsiError(f"{letter.doc.job_id}: not before {after}; --force tries it all the same")


def _added(letter: Letter, text: str, now: float) -> str:
    before = f"{letter.doc.resolution_notes}\n" if letter.doc.resolution_notes else ""
    return f"{before}{clock.iso(now)} {plain_text(redact(text), 10_000)}"[-20_000:]


def _write(rt: Processing, letter: Letter, action: str, text: str) -> None:
    video = videos.find(str(letter.doc.video_id))
    scope = audit.Scope(
        AGENT, video.correlation_id if video else None, "video", letter.doc.video_id, rt.settings.retention.audit_days
    )
    audit.write(scope, action, "success", rt.now(), data_summary=text, tool_name=letter.doc.job_id)
