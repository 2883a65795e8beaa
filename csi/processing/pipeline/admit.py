"""Which discovered videos are worked on today: skip rules, the day's limit, and a job for each that passes."""

from dataclasses import dataclass

from csi import clock
from csi.logs import log
from csi.patterns import compile_pattern
from csi.processing.documents import TranscriptionJobDocument
from csi.processing.pipeline.retries import TRANSCRIPTION_WAITS
from csi.processing.runtime import Processing, day_span
from csi.processing.settings import Limits
from csi.processing.states import IllegalMove
from csi.processing.store import audit, jobs, runs, videos
from csi.processing.store.db import writing
from csi.processing.store.videos import Video
from csi.processing.wake import Wake, wake_job

AGENT = "admission"
CHUNK = 100


@dataclass(frozen=True)
class Admit:
    """It may be worked on."""


@dataclass(frozen=True)
class Skip:
    """Never: `why` is the rule, `words` the sentence."""

    why: str
    words: str


@dataclass(frozen=True)
class Hold:
    """Not today."""

    why: str


def judge(video: Video, limits: Limits, admitted: int) -> Admit | Skip | Hold:
    """Pure. A length that nobody knows passes: it may be short."""
    seconds, title = video.doc.duration_sec, video.doc.title
    if video.kind in limits.skip_kinds:
        return Skip("kind", f"it is {video.kind}: there is nothing to transcribe yet")
    if limits.skip_title and compile_pattern(limits.skip_title).matches(title):
        return Skip("title", "its title is among those to be skipped")
    if seconds > limits.max_duration:
        return Skip("max_duration", f"it is longer than {limits.max_duration:g} s")
    if 0 < seconds < limits.min_duration:
        return Skip("min_duration", f"it is shorter than {limits.min_duration:g} s")
    return Hold("videos_per_day") if admitted >= limits.videos_per_day else Admit()


def admit(rt: Processing) -> list[Wake]:
    """Move what may go. Everything of one video in one transaction."""
    if rt.settings.paused:
        return []
    waiting = videos.discovered(rt.now(), CHUNK)
    found = [wake for video in waiting for wake in _admit_if_free(rt, video)]
    return [*found, *([Wake("admit")] if len(waiting) == CHUNK else [])]


def _admit_if_free(rt: Processing, video: Video) -> list[Wake]:
    try:
        return _admit_one(rt, video)
    except IllegalMove:
        return []  # another thread was faster


def _admit_one(rt: Processing, video: Video) -> list[Wake]:
    now, today = rt.now(), rt.today()
    scope = audit.Scope(AGENT, video.correlation_id, "video", video.id, rt.settings.retention.audit_days)
    with writing():
        verdict = judge(video, rt.settings.limits, videos.admitted_since(day_span(today)[0]))
        match verdict:
            case Skip(why, words):
                videos.skip(video, words, now)
                runs.mark(today, "policy", why, now)
                audit.write(
                    scope, "skip", "skipped", now, event_type="policy_enforcement", error_code=why, error_message=words
                )
                return []
            case Hold(why):
                videos.hold(video.id, day_span(today)[1], why)
                runs.mark(today, "quota", why, now)
                return []
            case Admit():
                videos.move(video, "transcription_queued", now)
                doc = new_job(rt, video, now)
                jobs.create(jobs.TRANSCRIPTION, doc, now)
                audit.write(scope, "queue_transcription", "success", now)
    rt.failpoint("admit.committed")
    log.info("video queued", video_id=video.id, pipeline=video.pipeline)
    return [wake_job(doc.job_id)]


def new_job(rt: Processing, video: Video, now: float) -> TranscriptionJobDocument:
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
