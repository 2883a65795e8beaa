"""Admission of discovered videos: skip rules, the daily limit, and a transcription job for each admitted video."""

from dataclasses import dataclass
from typing import Literal

from csi import clock
from csi.logs import log
from csi.patterns import compile_pattern
from csi.processing.collection_models import TranscriptionJobDocument
from csi.processing.pipeline.settle_failure import TRANSCRIPTION_WAITS
from csi.processing.runtime import Processing, StepWake, day_span, wake_job
from csi.processing.settings import LimitSettings
from csi.processing.states import IllegalTransition
from csi.processing.store import audit, jobs, runs, videos
from csi.processing.store.db import writing
from csi.processing.store.jobs import ProcessingJob
from csi.processing.store.videos import ProcessingVideo

AGENT = "admission"
CHUNK = 100
BY_COMMAND = "retry"
"""`held` of a video that the operator wants processed: no rule skips or defers it."""


@dataclass(frozen=True)
class Admission:
    """A skipped video is never processed, a deferred one waits for the next day. `rule` names the limit."""

    action: Literal["admit", "skip", "defer"]
    rule: str = ""
    reason: str = ""


def judge(video: ProcessingVideo, limits: LimitSettings, admitted: int) -> Admission:
    """Pure. A video of unknown duration (0) passes both duration rules."""
    seconds, title = video.doc.duration_sec, video.doc.title
    if video.held == BY_COMMAND:
        return Admission("admit")
    if video.kind in limits.skip_kinds:
        return Admission("skip", "kind", f"videos of kind {video.kind} are skipped (limits.skip_kinds)")
    if limits.skip_title and compile_pattern(limits.skip_title).matches(title):
        return Admission("skip", "title", "the title matches limits.skip_title")
    if seconds > limits.max_duration:
        return Admission("skip", "max_duration", f"longer than {limits.max_duration:g} s (limits.max_duration)")
    if 0 < seconds < limits.min_duration:
        return Admission("skip", "min_duration", f"shorter than {limits.min_duration:g} s (limits.min_duration)")
    return Admission("defer", "videos_per_day") if admitted >= limits.videos_per_day else Admission("admit")


def admit(rt: Processing) -> list[StepWake]:
    """Admit, skip or defer one chunk of discovered videos, each in a transaction of its own."""
    if rt.settings.paused:
        return []
    due, wakes = videos.discovered(rt.now(), CHUNK), []
    for video in due:
        try:
            wakes += _admit_one(rt, video)
        except IllegalTransition:
            continue  # another thread admitted it first
    return [*wakes, *([StepWake("admit")] if len(due) == CHUNK else [])]


def _admit_one(rt: Processing, video: ProcessingVideo) -> list[StepWake]:
    now, today = rt.now(), rt.today()
    scope = rt.video_scope(AGENT, video)
    with writing():
        # Counted inside of the transaction: on SQLite no other thread can admit a video between count and commit.
        match judge(video, rt.settings.limits, videos.admitted_since(day_span(today)[0])):
            case Admission("skip", rule, reason):
                videos.skip(video, reason, now)
                runs.mark(today, "policy", rule, now)
                error = {"error_code": rule, "error_message": reason}
                audit.write(scope, "skip", "skipped", now, event_type="policy_enforcement", **error)
                return []
            case Admission("defer", rule):
                videos.defer(video.id, day_span(today)[1], rule)
                runs.mark(today, "quota", rule, now)
                return []
            case _:
                videos.move(video, "transcription_queued", now)
                doc = new_job(rt, video, now)
                job_id = doc.job_id
                if not jobs.create(jobs.TRANSCRIPTION, doc, now):
                    job_id = _reopen_known(video.id, now)
                audit.write(scope, "queue_transcription", "success", now)
    rt.failpoint("admit.committed")
    log.info("video queued", video_id=video.id, pipeline=video.pipeline)
    return [wake_job(job_id)]


def _reopen_known(video_id: str, now: float) -> str:
    """A video that was skipped before begins again: with its transcript, where it has one. The job's id."""
    known: dict[str, ProcessingJob] = {job.collection: job for job in jobs.of_video(video_id)}
    job = known[jobs.TRANSCRIPTION]
    if job.doc.status == "completed" and jobs.SUMMARIZATION in known:
        job = known[jobs.SUMMARIZATION]
        videos.move(videos.get(video_id), "transcribed", now)
    jobs.reopen(job, now)
    return job.id


def new_job(rt: Processing, video: ProcessingVideo, now: float) -> TranscriptionJobDocument:
    settings, moment = rt.settings.transcription, clock.iso(now)
    return TranscriptionJobDocument(
        job_id=jobs.job_id(jobs.TRANSCRIPTION, video.id),
        video_id=video.id,
        status="queued",
        audio_url=video.url,
        duration_sec=video.doc.duration_sec,
        webhook_url=settings.assemblyai.webhook_url if "assemblyai" in settings.providers else None,
        estimated_cost_usd=0,
        speaker_labels=settings.speaker_labels,
        language_code=settings.languages[0] if settings.languages else None,
        created_at=moment,
        updated_at=moment,
        attempt_count=0,
        max_attempts=len(TRANSCRIPTION_WAITS) + 1,
    )
