"""One turn of a transcription job: ask a provider, look at what it does, or settle what it gave."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from csi import clock
from csi.logs import log
from csi.processing.documents import SummarizationJobDocument, Summary, SummaryRefs, TranscriptionJobDocument, VideoRefs
from csi.processing.pipeline.budget import BudgetSpent, note_spent, reserve, watch
from csi.processing.pipeline.failure import scope_of, settle_failure, take
from csi.processing.providers.base import PaidTranscriber, ProviderError, Transcript, Waiting, Wanted
from csi.processing.providers.transcript_formats import base_language
from csi.processing.runtime import Processing
from csi.processing.sanitize import markdown_line
from csi.processing.store import artifacts, audit, jobs, paid_calls, videos
from csi.processing.store.artifacts import Artifact
from csi.processing.store.db import writing
from csi.processing.store.jobs import Job, LostLease
from csi.processing.store.videos import Video
from csi.processing.wake import Wake, wake_job

T = TypeVar("T")

ARRIVAL_SECONDS = 60.0
"""A request may still be under way, whoever stopped waiting for it: so long nobody says that it never arrived."""


def transcribe(rt: Processing, job_id: str) -> list[Wake]:
    """Claim, one request or two, settle. The row says where it was, so that a crash repeats nothing that was paid."""
    job = take(rt, job_id)
    if job is None:
        return []
    rt.failpoint("transcribe.claimed")
    names = rt.settings.transcription.providers
    turn = min(int(job.work.get("provider", 0)), len(names) - 1)
    try:
        return _turn(rt, job, names[turn])
    except ProviderError as error:
        return settle_failure(rt, jobs.reread(job), error, more_providers=turn + 1 < len(names))
    except BudgetSpent as spent:
        return _wait_for_money(rt, job, spent)
    except LostLease:
        log.info("job was taken by another worker", job_id=job_id)
        return []


def _turn(rt: Processing, job: Job, name: str) -> list[Wake]:
    video = videos.get(job.video_id)
    wanted = Wanted(
        video.id,
        video.url,
        video.doc.duration_sec,
        rt.settings.transcription.languages,
        rt.settings.transcription.speaker_labels,
    )
    if name in rt.free:
        kind = "data_access" if name == "file" else "api_call"
        found = _timed(rt, job, video, f"fetch:{name}", lambda: rt.free[name].fetch(wanted), kind)
        return _settle_transcript(rt, job, found)
    return _paid_turn(rt, job, rt.paid[name], wanted)


def _paid_turn(rt: Processing, job: Job, provider: PaidTranscriber, wanted: Wanted) -> list[Wake]:
    """uploaded → submitting → submitted: each phase is committed before the request that follows it."""
    video = videos.get(job.video_id)
    if job.work.get("phase") not in ("uploaded", "submitting", "submitted"):
        address = _timed(rt, job, video, "upload", lambda: provider.upload(wanted))
        rt.failpoint("transcribe.uploaded")
        with writing():
            job = jobs.note(
                job,
                rt.now(),
                work={"phase": "uploaded", "upload_url": address},
                audio_url=address,
                status="processing",
                estimated_cost_usd=provider.estimate(wanted),
            )
    if job.work["phase"] == "submitting":
        job = _recover(rt, job, provider)
    if job.work["phase"] == "uploaded":
        job = _submit(rt, job, provider, wanted)
        return _look_later(rt, job)
    return _look(rt, job, provider)


def _submit(rt: Processing, job: Job, provider: PaidTranscriber, wanted: Wanted) -> Job:
    """The reservation and the word `submitting` are committed first: from then on the request may have been paid."""
    video = videos.get(job.video_id)
    number = int(job.work.get("submission", 0)) + 1
    with writing():
        reserve(rt, _call_key(job, number), job.id, provider.name, provider.estimate(wanted))
        job = jobs.note(job, rt.now(), work={"phase": "submitting", "submission": number, "asked_at": rt.now()})
    rt.failpoint("transcribe.submitting")
    upload_url = str(job.work["upload_url"])
    try:
        found = _timed(rt, job, video, "submit", lambda: provider.submit(upload_url, wanted))
    except ProviderError as error:
        _note_unsubmitted(rt, job, error, number)
        raise
    rt.failpoint("transcribe.submitted")
    return _adopt(rt, job, found)


def _note_unsubmitted(rt: Processing, job: Job, error: ProviderError, number: int) -> None:
    """A clear no costs nothing, and the next try submits anew. Anything else is looked up first."""
    if error.fault in ("refused", "quota") or (error.fault == "transient" and error.status == 429):
        with writing():
            paid_calls.finish(_call_key(job, number), "free", rt.now())
            jobs.note(job, rt.now(), work={"phase": "uploaded"})


def _recover(rt: Processing, job: Job, provider: PaidTranscriber) -> Job:
    """A submission whose answer we never saw: the upload's address is its own, so the provider's list tells."""
    video, upload_url = videos.get(job.video_id), str(job.work["upload_url"])
    found = _timed(rt, job, video, "find_submitted", lambda: provider.find_submitted(upload_url))
    if found is not None:
        return _adopt(rt, job, found)
    if rt.now() - float(job.work.get("asked_at", 0)) < ARRIVAL_SECONDS:
        words = "a submission that was not answered is not in the provider's list yet"
        raise ProviderError(words, fault="transient", code="outcome_unknown")
    with writing():
        paid_calls.finish(_call_key(job, int(job.work["submission"])), "free", rt.now())
        return jobs.note(job, rt.now(), work={"phase": "uploaded"})


def _adopt(rt: Processing, job: Job, provider_job_id: str) -> Job:
    now = rt.now()
    with writing():
        video = videos.get(job.video_id)
        videos.amend(video, now, assemblyai_job_id=provider_job_id)
        return jobs.note(
            job,
            now,
            work={"phase": "submitted", "submitted_at": now},
            provider_job_id=provider_job_id,
            status="submitted",
            assemblyai_job_id=provider_job_id,
            submitted_at=clock.iso(now),
        )


def _look(rt: Processing, job: Job, provider: PaidTranscriber) -> list[Wake]:
    video = videos.get(job.video_id)
    provider_job = str(job.provider_job_id)
    try:
        found = _timed(rt, job, video, "look", lambda: provider.look(provider_job))
    except ProviderError as error:
        if error.code == "invalid_audio":  # their failed jobs are free
            with writing():
                paid_calls.finish(_call_key(job, int(job.work["submission"])), "free", rt.now())
                jobs.note(job, rt.now(), work={"phase": ""})  # a retry uploads anew
        raise
    if isinstance(found, Waiting):
        return _look_later(rt, job)
    rt.failpoint("transcribe.transcript")
    with writing():
        price = provider.price(found)
        key = _call_key(job, int(job.work["submission"]))
        paid_calls.finish(key, "paid", rt.now(), actual=price)
        job = jobs.note(job, rt.now(), actual_cost_usd=paid_calls.spent_on(job.id))
        watch(rt)
    return _settle_transcript(rt, job, found)


def _look_later(rt: Processing, job: Job) -> list[Wake]:
    now, settings = rt.now(), rt.settings.transcription.assemblyai
    if now - float(job.work.get("submitted_at", now)) > settings.give_up_after:
        raise ProviderError(
            f"no transcript within {settings.give_up_after:g} s", fault="refused", code="timeout", error_type="timeout"
        )
    at = now + settings.poll_seconds
    with writing():
        jobs.settle(job, now, next_at=at, status="processing")
    return [wake_job(job.id, at)]


def _settle_transcript(rt: Processing, job: Job, found: Transcript) -> list[Wake]:
    """Files first, then one transaction for everything that follows; both can be repeated."""
    _check(rt, found)
    video, now = videos.get(job.video_id), rt.now()
    made = [
        rt.artifacts.write(video.id, "transcript.md", "transcript", _markdown(video, found)),
        rt.artifacts.write(video.id, "transcript.json", "transcript_json", _as_json(video, found)),
    ]
    rt.failpoint("transcribe.written")
    with writing():
        for artifact in made:
            artifacts.put(artifact, now)
        _complete(job, found, made[1], now)
        video = videos.move(
            video,
            "transcribed",
            now,
            transcript_doc_ref=f"jobs/transcription/{job.id}",
            drive_refs=VideoRefs(transcript_id=made[0].artifact_id).model_dump(),
        )
        following = new_summary_job(rt, video, now)
        jobs.create(jobs.SUMMARIZATION, following, now)
        audit.write(
            scope_of(rt, job, video),
            "transcribed",
            "success",
            now,
            tool_name=found.provider,
            data_summary=f"{found.words} words",
            api_cost_usd=paid_calls.spent_on(job.id),
        )
    rt.failpoint("transcribe.committed")
    log.info("video transcribed", video_id=video.id, provider=found.provider, words=found.words)
    return [wake_job(following.job_id)]


def _complete(job: Job, found: Transcript, whole: Artifact, now: float) -> None:
    """The document holds the text; the words and times behind it are in the file that it names."""
    facts = {
        "provider": found.provider,
        "artifact_id": whole.artifact_id,
        "words": found.words,
        "segments": len(found.segments),
        "sha256": whole.sha256,
    }
    jobs.settle(
        job,
        now,
        status="completed",
        completed_at=clock.iso(now),
        attempt_count=job.attempts + 1,
        transcript_text=found.text,
        transcript_json=facts,
        confidence=found.confidence,
        next_retry_at=None,
        language_code=found.language or _asked_language(job),
    )


def _asked_language(job: Job) -> str | None:
    return job.doc.language_code if isinstance(job.doc, TranscriptionJobDocument) else None


def _check(rt: Processing, found: Transcript) -> None:
    limits, languages = rt.settings.limits, rt.settings.transcription.languages
    if not found.words:
        raise ProviderError("nobody speaks in it", fault="absent", code="no_speech", error_type="invalid_audio")
    if found.words > limits.max_transcript_words:
        raise ProviderError(
            f"its transcript has {found.words:,} words, more than limits.max_transcript_words",
            fault="absent",
            code="too_many_words",
        )
    if languages and found.language and base_language(found.language) not in map(base_language, languages):
        raise ProviderError(f"it is in {found.language}", fault="absent", code="wrong_language")


def new_summary_job(rt: Processing, video: Video, now: float) -> SummarizationJobDocument:
    settings, moment = rt.settings.summarization, clock.iso(now)
    prompt = getattr(rt.summariser, "prompts", {}).get("summary")
    return SummarizationJobDocument(
        job_id=jobs.job_id(jobs.SUMMARIZATION, video.id),
        video_id=video.id,
        transcript_doc_ref=str(video.doc.transcript_doc_ref),
        status="queued",
        summary_type=settings.summary_type,
        max_length=settings.max_bullets,
        focus_areas=list(settings.focus_areas) or None,
        model_used=rt.summariser.model,
        prompt_id=prompt.id if prompt else "extractive",
        prompt_version=prompt.version if prompt else "1",
        created_at=moment,
        updated_at=moment,
        input_tokens=0,
        output_tokens=0,
        estimated_cost_usd=0,
        summary=Summary(bullets=[], key_concepts=[]),
        drive_refs=SummaryRefs(short_summary_id=""),
        zep_collection="",
        attempt_count=0,
    )


def _timed(rt: Processing, job: Job, video: Video, action: str, call: Callable[[], T], kind: str = "api_call") -> T:
    """A provider's call with its entry in the audit log. A failure is written by whoever settles it."""
    started = time.monotonic()
    found = call()
    spent = round(1000 * (time.monotonic() - started), 1)
    with writing():
        audit.write(scope_of(rt, job, video), action, "success", rt.now(), event_type=kind, duration_ms=spent)
    return found


def _wait_for_money(rt: Processing, job: Job, spent: BudgetSpent) -> list[Wake]:
    with writing():
        note_spent(rt)
        jobs.settle(
            jobs.reread(job), rt.now(), next_at=spent.until, error_message=str(spent), error_type="quota_exceeded"
        )
    return []


def _call_key(job: Job, number: int) -> str:
    return f"{job.id}/submit/{number}"


def _markdown(video: Video, found: Transcript) -> str:
    head = [
        f"# {markdown_line(video.doc.title)}",
        "",
        f"Transcript · {found.provider} · {found.language or 'language not told'} · {video.url}",
        "",
    ]
    lines = [_line(segment.start, segment.speaker, segment.text) for segment in found.segments]
    return "\n".join([*head, *(lines or [found.text]), ""])


def _line(start: float, speaker: str | None, text: str) -> str:
    minutes, seconds = divmod(int(start), 60)
    who = f"**{speaker}:** " if speaker else ""
    return f"[{minutes:02d}:{seconds:02d}] {who}{text}  "


def _as_json(video: Video, found: Transcript) -> str:
    data: dict[str, Any] = {"video_id": video.id, **asdict(found)}
    return json.dumps(data, ensure_ascii=False)
