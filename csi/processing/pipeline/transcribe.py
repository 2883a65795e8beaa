"""Run one step of a transcription job: call a provider, poll its job, or settle its transcript."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

from csi import clock
from csi.logs import log
from csi.processing.collection_models import (
    SummarizationJobDocument,
    SummaryRefs,
    TranscriptionJobDocument,
    VideoSummary,
)
from csi.processing.pipeline.budget import BudgetExhausted, alert_near_limit, book, reserve, wait_for_budget
from csi.processing.pipeline.later import (
    STREAM_END,
    asked_again_at,
    find_facts,
    lacks_facts,
    learn_facts,
    stream_looked_at,
)
from csi.processing.pipeline.provider_access import may_call, note_success, provider_of
from csi.processing.pipeline.settle_failure import claim_job, job_scope, settle_failure
from csi.processing.providers.assemblyai import AssemblyTranscriber
from csi.processing.providers.base import ProviderError, Transcript, TranscriptRequest, base_language
from csi.processing.providers.captions import NO_CAPTIONS
from csi.processing.providers.document_stores import KeptDocument, keep
from csi.processing.providers.http_errors import recorded_calls
from csi.processing.runtime import DAY, Processing, StepWake, wake_job
from csi.processing.sanitize import markdown_line
from csi.processing.settings import STREAMS
from csi.processing.store import artifacts, audit, dead_jobs, jobs, paid_calls, runs, videos
from csi.processing.store.db import writing
from csi.processing.store.jobs import LostLease, ProcessingJob
from csi.processing.store.videos import ProcessingVideo

T = TypeVar("T")

UPLOAD_SECONDS = 20 * 3600.0
"""The provider deletes an upload that is not used for a day: an older one is not submitted."""
MAX_GONE = 2
"""A job that the provider does not know any more is submitted again this often at most."""
ARRIVAL_SECONDS = 60.0
"""A submission without an answer may still be on its way for this long: until then it does not count as lost."""


def transcribe(rt: Processing, job_id: str) -> list[StepWake]:
    """Claim, one or two requests, settle. The row stores each phase, so that a crash repeats no paid request."""
    job = claim_job(rt, job_id)
    if job is None:
        return []
    rt.failpoint("transcribe.claimed")
    settings, name = rt.settings.transcription, provider_of(rt, job)
    video = videos.get(job.video_id)
    request = TranscriptRequest(
        video.id, video.url, video.doc.duration_sec, settings.languages, settings.speaker_labels
    )
    try:
        if not may_call(rt, job):
            return []
        waiting = _learn_or_wait(rt, job, video)
        if waiting is not None:
            return waiting
        job, video = jobs.reread(job), videos.get(job.video_id)
        request = replace(request, duration=video.doc.duration_sec)
        if name not in rt.free:
            return _run_paid(rt, job, rt.paid[name], request)
        kind = "data_access" if name == "file" else "api_call"
        return _settle_transcript(rt, job, _timed(rt, job, f"fetch:{name}", lambda: rt.free[name].fetch(request), kind))
    except ProviderError as error:
        more_providers = name != settings.providers[-1] and not _captions_will_come(rt, job, error)
        return settle_failure(rt, jobs.reread(job), error, more_providers=more_providers)
    except BudgetExhausted as exhausted:
        wait_for_budget(rt, job, exhausted)
    except LostLease:
        log.info("job was claimed by another worker", job_id=job_id)
    return []


def _captions_will_come(rt: Processing, job: ProcessingJob, error: ProviderError) -> bool:
    """The owner uploaded captions, as the catalogue or YouTube says: they are waited for before audio is paid."""
    if error.code != NO_CAPTIONS[0] or not jobs.reread(job).work.get("has_captions"):
        return False
    return asked_again_at(rt, videos.get(job.video_id), job.work.get("available_at"), rt.now()) is not None


def _learn_or_wait(rt: Processing, job: ProcessingJob, video: ProcessingVideo) -> list[StepWake] | None:
    """Look up what is not known of the video, its length first. None: the transcript can be asked for now.

    A stream is waited for until it is over; what it is then may be against the limits. A stream whose state no source
    knows is asked for its captions from time to time, and its audio is not fetched before a day is over.
    """
    is_stream, now = video.kind in STREAMS, rt.now()
    if not is_stream and (not rt.fact_sources or job.work.get("looked_up") or not lacks_facts(video)):
        return None
    facts = find_facts(rt, video)
    at = stream_looked_at(facts, video, now) if is_stream else None
    is_over = is_stream and facts is not None and facts.broadcast == "none"
    if is_stream and at is None and not is_over and provider_of(rt, job) in rt.paid:
        at = None if now - video.discovered_at >= DAY else asked_again_at(rt, video, None, now)
    with writing():
        if facts is not None:
            video = learn_facts(video, facts, now, kind="video" if is_over else None)
        if at is not None:
            is_known = facts is not None and facts.broadcast is not None
            words = "the stream is not over" if is_known else "it is not known whether the stream is over"
            scope = job_scope(rt, job, video)
            audit.write(scope, "wait", "skipped", now, error_code=STREAM_END, error_message=words)
            jobs.settle(job, now, next_at=at, waits_for=STREAM_END, next_retry_at=clock.iso(at), error_message=words)
            return [wake_job(job.id, at)]
        known = {"looked_up": facts is not None, "has_captions": facts is not None and facts.has_captions is True}
        job = jobs.update(job, now, duration_sec=video.doc.duration_sec, work=known)
        if is_over:
            job = jobs.update(job, now, work={"available_at": now})
        limit = rt.settings.limits.max_duration
        if is_over and video.doc.duration_sec > limit:
            reason = f"longer than {limit:g} s (limits.max_duration)"
            jobs.settle(job, now, status="failed", error_message=reason)
            videos.skip(video, reason, now)
            runs.mark(rt.today(), "policy", "max_duration", now)
            error = {"error_code": "max_duration", "error_message": reason}
            audit.write(job_scope(rt, job, video), "skip", "skipped", now, event_type="policy_enforcement", **error)
            return []
    return None


def _run_paid(
    rt: Processing, job: ProcessingJob, provider: AssemblyTranscriber, request: TranscriptRequest
) -> list[StepWake]:
    """reserved → uploaded → submitting → submitted: each phase is committed before the request that follows it."""
    if job.work.get("phase") == "submitting":
        # The answer of a submission was lost. Its upload URL is unique, so the provider's list shows its job.
        upload_url = str(job.work["upload_url"])
        provider_job_id = _timed(rt, job, "find_submitted", lambda: provider.find_submitted(upload_url))
        if provider_job_id is not None:
            job = _adopt(rt, job, provider_job_id)
        else:
            if rt.now() - float(job.work.get("asked_at", 0)) < ARRIVAL_SECONDS:
                words = "a submission without an answer is not in the provider's list yet"
                raise ProviderError(words, "transient", "outcome_unknown")
            job = _discard_submission(rt, job)
    if job.work.get("phase") == "uploaded" and rt.now() - float(job.work.get("uploaded_at", rt.now())) > UPLOAD_SECONDS:
        job = _discard_submission(rt, job, phase="")
    if job.work.get("phase") not in ("uploaded", "submitted"):
        job = _reserve_and_upload(rt, job, provider, request)
    if job.work["phase"] == "uploaded":
        return _poll_later(rt, _submit(rt, job, provider, request))
    return _poll(rt, job, provider, request)


def _reserve_and_upload(
    rt: Processing, job: ProcessingJob, provider: AssemblyTranscriber, request: TranscriptRequest
) -> ProcessingJob:
    """Money first: audio that the budget does not cover is not fetched. A crash uploads again, which is free."""
    if job.work.get("phase") == "reserved":
        job = _discard_submission(rt, job, phase="")  # it was never submitted
    job = _reserve(rt, job, provider, request, "reserved")
    rt.failpoint("transcribe.reserved")
    try:
        upload_url = _timed(rt, job, "upload", lambda: provider.upload(request))
    except ProviderError:
        _discard_submission(rt, job, phase="")
        raise
    rt.failpoint("transcribe.uploaded")
    work = {"phase": "uploaded", "upload_url": upload_url, "uploaded_at": rt.now()}
    with writing():
        return jobs.update(job, rt.now(), work=work, audio_url=upload_url)


def _reserve(
    rt: Processing, job: ProcessingJob, provider: AssemblyTranscriber, request: TranscriptRequest, phase: str
) -> ProcessingJob:
    estimate = provider.estimate(request)
    work = {"phase": phase, "submission": int(job.work.get("submission", 0)) + 1}
    with writing():
        job = jobs.update(job, rt.now(), work=work, status="processing", estimated_cost_usd=estimate)
        reserve(rt, _call_key(job), job.id, provider.name, estimate)
    return job


def _submit(
    rt: Processing, job: ProcessingJob, provider: AssemblyTranscriber, request: TranscriptRequest
) -> ProcessingJob:
    """Commit the phase `submitting` first: after that the request may have been paid."""
    known = paid_calls.find(_call_key(job)) if "submission" in job.work else None
    if known is None or known.state != "started":  # an earlier submission was refused
        job = _reserve(rt, job, provider, request, "uploaded")
    with writing():
        job = jobs.update(job, rt.now(), work={"phase": "submitting", "asked_at": rt.now()})
    rt.failpoint("transcribe.submitting")
    upload_url = str(job.work["upload_url"])
    try:
        provider_job_id = _timed(rt, job, "submit", lambda: provider.submit(upload_url, request))
    except ProviderError as error:
        # A clear refusal is free and the next try submits again. After any other error the provider's list is read
        # first, since the submission may have arrived.
        if error.fault in ("refused", "account") or (error.fault == "transient" and error.status == 429):
            _discard_submission(rt, job)
        raise
    rt.failpoint("transcribe.submitted")
    return _adopt(rt, job, provider_job_id)


def _discard_submission(rt: Processing, job: ProcessingJob, phase: str = "uploaded") -> ProcessingJob:
    """The submission cost nothing; the next step continues in the given phase."""
    with writing():
        book(rt, _call_key(job), "free")
        return jobs.update(job, rt.now(), work={"phase": phase})


def _adopt(rt: Processing, job: ProcessingJob, provider_job_id: str) -> ProcessingJob:
    now = rt.now()
    with writing():
        videos.amend(videos.get(job.video_id), now, assemblyai_job_id=provider_job_id)
        return jobs.update(
            job,
            now,
            work={"phase": "submitted", "submitted_at": now},
            provider_job_id=provider_job_id,
            status="submitted",
            assemblyai_job_id=provider_job_id,
            submitted_at=clock.iso(now),
        )


def _poll(
    rt: Processing, job: ProcessingJob, provider: AssemblyTranscriber, request: TranscriptRequest
) -> list[StepWake]:
    provider_job_id = str(job.provider_job_id)
    try:
        transcript = _timed(rt, job, "look", lambda: provider.fetch(provider_job_id))
    except ProviderError as error:
        if error.code == "invalid_audio":  # the provider does not charge failed jobs; a retry uploads again
            _discard_submission(rt, job, phase="")
        if error.status == 404:
            # The provider no longer knows its job, which may have been paid: the audio is submitted again
            gone = int(job.work.get("gone", 0)) + 1
            with writing():
                book(rt, _call_key(job), "unknown")
                jobs.update(job, rt.now(), work={"phase": "", "gone": gone})
            words = "AssemblyAI: 404, the provider does not know this job any more"
            job_gone = ProviderError(words, "transient" if gone <= MAX_GONE else "refused", "job_gone", status=404)
            raise job_gone from error
        raise
    if transcript is None:
        return _poll_later(rt, job)
    rt.failpoint("transcribe.transcript")
    # A crash before this commit polls again, which is free; the price is recorded once, under the submission's key.
    with writing():
        book(rt, _call_key(job), "paid", actual=provider.price(transcript, request))
        job = jobs.update(job, rt.now(), actual_cost_usd=paid_calls.spent_on(job.id))
        alert_near_limit(rt)
    return _settle_transcript(rt, job, transcript)


def _poll_later(rt: Processing, job: ProcessingJob) -> list[StepWake]:
    now, settings = rt.now(), rt.settings.transcription.assemblyai
    if now - float(job.work.get("submitted_at", now)) > settings.give_up_after:
        words = f"no transcript within {settings.give_up_after:g} s"
        raise ProviderError(words, "refused", "timeout", error_type="timeout")
    at = now + settings.poll_seconds
    # The lease is released between two polls: the job waits as a due time, and any worker may take the next poll.
    with writing():
        jobs.settle(job, now, next_at=at, status="processing")
    return [wake_job(job.id, at)]


def _settle_transcript(rt: Processing, job: ProcessingJob, transcript: Transcript) -> list[StepWake]:
    """Files first, then one transaction: a crash between them writes the same files again."""
    _check_transcript(rt, transcript)
    video, now = videos.get(job.video_id), rt.now()
    text = json.dumps({"video_id": video.id, **asdict(transcript)}, ensure_ascii=False)
    readable = rt.artifacts.write(video.id, "transcript.md", "transcript", _markdown(video, transcript))
    full = rt.artifacts.write(video.id, "transcript.json", "transcript_json", text)
    kept = KeptDocument("transcript", video.id, video.doc.title, _markdown(video, transcript), readable.artifact_id)
    kept_id = keep("document", partial(rt.documents.put, kept))
    rt.failpoint("transcribe.written")
    # The document holds the text; segments and times are in the artifact that `transcript_json` names.
    facts = {
        "provider": transcript.provider,
        "artifact_id": full.artifact_id,
        "words": transcript.words,
        "segments": len(transcript.segments),
        "sha256": full.sha256,
    }
    requested = job.doc.language_code if isinstance(job.doc, TranscriptionJobDocument) else None
    with writing():
        artifacts.put(readable, now)
        artifacts.put(full, now)
        jobs.settle(
            job,
            now,
            status="completed",
            completed_at=clock.iso(now),
            attempt_count=job.attempts + 1,
            transcript_text=transcript.text,
            transcript_json=facts,
            confidence=transcript.confidence,
            next_retry_at=None,
            error_message=None,
            error_type=None,
            work={"first_failure_at": None},
            language_code=transcript.language or requested,
        )
        refs = {"transcript_id": kept_id}
        reference = f"jobs/transcription/{job.id}"
        seconds = video.doc.duration_sec or transcript.duration or 0.0
        video = videos.move(
            video, "transcribed", now, transcript_doc_ref=reference, drive_refs=refs, duration_sec=seconds
        )
        dead_jobs.resolve_retried(job.id, now)
        summary_job = new_summary_job(rt, video, now)
        jobs.create(jobs.SUMMARIZATION, summary_job, now)
        scope, cost, words = job_scope(rt, job, video), paid_calls.spent_on(job.id), f"{transcript.words} words"
        tool = transcript.provider
        audit.write(scope, "transcribed", "success", now, tool_name=tool, data_summary=words, api_cost_usd=cost)
    rt.failpoint("transcribe.committed")
    log.info("video transcribed", video_id=video.id, provider=transcript.provider, words=transcript.words)
    return [wake_job(summary_job.job_id)]


def _check_transcript(rt: Processing, transcript: Transcript) -> None:
    limits, languages = rt.settings.limits, rt.settings.transcription.languages
    if not transcript.words:
        raise ProviderError("the video contains no speech", "absent", "no_speech", error_type="invalid_audio")
    if transcript.words > limits.max_transcript_words:
        words = f"the transcript has {transcript.words:,} words, more than limits.max_transcript_words"
        raise ProviderError(words, "absent", "too_many_words")
    if languages and transcript.language and base_language(transcript.language) not in map(base_language, languages):
        words = f"the transcript is in {transcript.language}, which is not in transcription.languages"
        raise ProviderError(words, "absent", "wrong_language")


def new_summary_job(rt: Processing, video: ProcessingVideo, now: float) -> SummarizationJobDocument:
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
        summary=VideoSummary(bullets=[], key_concepts=[]),
        drive_refs=SummaryRefs(short_summary_id=""),
        zep_collection="",
        attempt_count=0,
    )


def _timed(rt: Processing, job: ProcessingJob, action: str, call: Callable[[], T], kind: str = "api_call") -> T:
    """Call a provider and write a successful call to the audit log. `settle_failure` writes the failed ones."""
    started = time.monotonic()
    with recorded_calls() as calls:
        result = call()
    spent = round(1000 * (time.monotonic() - started), 1)
    with writing():
        scope = job_scope(rt, job, videos.get(job.video_id))
        for made in calls[:-1]:
            audit.write(scope, action, "success", rt.now(), event_type=kind, **made.audit_fields())
        fields: dict[str, Any] = (calls[-1].audit_fields() if calls else {}) | {"duration_ms": spent}
        audit.write(scope, action, "success", rt.now(), event_type=kind, **fields)
        note_success(rt, provider_of(rt, job), is_paid=action == "submit")
    return result


def _call_key(job: ProcessingJob) -> str:
    return f"{job.id}/submit/{job.work['submission']}"


def _markdown(video: ProcessingVideo, transcript: Transcript) -> str:
    source = f"{transcript.provider} · {transcript.language or 'language unknown'}"
    lines = [f"# {markdown_line(video.doc.title)}", "", f"Transcript · {source} · {video.url}", ""]
    for segment in transcript.segments:
        minutes, seconds = divmod(int(segment.start), 60)
        speaker = f"**{segment.speaker}:** " if segment.speaker else ""
        lines.append(f"[{minutes:02d}:{seconds:02d}] {speaker}{segment.text}  ")
    if not transcript.segments:
        lines.append(transcript.text)
    return "\n".join([*lines, ""])
