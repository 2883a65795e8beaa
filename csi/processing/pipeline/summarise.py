"""Run one step of a summarization job: paid answers are committed before they are used. And the outputs of routes."""

import json
import time
from dataclasses import asdict, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from csi import clock
from csi.errors import CsiError
from csi.logs import log
from csi.processing.collection_models import SummarizationJobDocument, TranscriptionJobDocument
from csi.processing.pipeline.budget import BudgetExhausted, alert_near_limit, book, reserve, wait_for_budget
from csi.processing.pipeline.provider_access import may_call, note_success, provider_of
from csi.processing.pipeline.settle_failure import claim_job, job_scope, move_to_dead_letters, settle_failure
from csi.processing.providers.base import (
    ModelReply,
    ProviderError,
    Summariser,
    SummaryInput,
    SummaryResult,
    SummaryType,
)
from csi.processing.providers.document_stores import KeptDocument, Memory, keep
from csi.processing.providers.http_errors import recorded_calls
from csi.processing.providers.openai import ChatClient, OpenAISummariser, UnusableReply
from csi.processing.runtime import Processing, StepWake, wake_job
from csi.processing.sanitize import markdown_line, plain_line
from csi.processing.settings import DocumentKind, SignalRoute
from csi.processing.store import (
    artifacts,
    audit,
    dead_jobs,
    jobs,
    notices,
    paid_calls,
    providers,
    received_events,
    videos,
)
from csi.processing.store.db import writing
from csi.processing.store.jobs import LostLease, ProcessingJob
from csi.processing.store.videos import ProcessingVideo

FILE_NAMES = {"concept": "CONCEPT.md", "implementation": "IMPLEMENTATION.md"}


class OutcomeUnknown(ProviderError):
    """A paid call without an answer, to an endpoint that cannot tell its outcome: an operator must check it."""

    def __init__(self, reason: str, cause: str) -> None:
        words = f"{reason}; whether the call was carried out and paid is unknown"
        super().__init__(words, "unknown", "outcome_unknown", cause=cause)


class CheapOutcomeUnknown(OutcomeUnknown):
    """The call is repeated as the next attempt: should both be paid, that is less than `retry_unknown_below_usd`."""


class WorkerStopping(CsiError):
    """The worker shuts down. A call that began now would be cut off with an unknown outcome."""


def summarise(rt: Processing, job_id: str) -> list[StepWake]:
    job = claim_job(rt, job_id)
    if job is None:
        return []
    rt.failpoint("summarise.claimed")
    try:
        return _summarise(rt, job) if may_call(rt, job) else []
    except CheapOutcomeUnknown as error:
        return settle_failure(rt, jobs.reread(job), error, answered=True)
    except OutcomeUnknown as error:
        with writing():
            providers.record_failure(provider_of(rt, job), error.cause, rt.now())
            video = videos.get(job.video_id)
            move_to_dead_letters(rt, jobs.reread(job), video, error, "manual_intervention", can_retry=True)
    except UnusableReply as error:
        return settle_failure(rt, jobs.reread(job), error, answered=True)
    except ProviderError as error:
        return settle_failure(rt, jobs.reread(job), error)
    except BudgetExhausted as exhausted:
        wait_for_budget(rt, job, exhausted)
    except WorkerStopping:
        with writing():
            jobs.settle(jobs.reread(job), rt.now(), api_tries=job.api_tries)
        return [wake_job(job.id)]
    except LostLease:
        log.info("job was claimed by another worker", job_id=job_id)
    return []


def _summarise(rt: Processing, job: ProcessingJob) -> list[StepWake]:
    video = videos.get(job.video_id)
    settings = rt.settings.summarization
    wishes: dict[str, Any] = job.work.get("wishes", {})
    transcription = jobs.find(jobs.job_id(jobs.TRANSCRIPTION, job.video_id))
    doc = transcription.doc if transcription else None
    if not isinstance(doc, TranscriptionJobDocument) or not doc.transcript_text:
        raise ProviderError("the transcript no longer exists", "refused", "no_transcript")
    source = SummaryInput(
        title=video.doc.title,
        channel=video.doc.channel_title,
        url=video.url,
        text=doc.transcript_text,
        max_bullets=settings.max_bullets,
        focus_areas=settings.focus_areas,
        summary_type=wishes.get("summary_type", settings.summary_type),
        language=wishes.get("language"),
    )
    summariser, chat = rt.summariser, rt.chat
    if isinstance(summariser, OpenAISummariser) and chat is not None:
        prompt = Path(wishes["prompt"]) if "prompt" in wishes else None
        summariser = summariser.changed(model=wishes.get("model"), prompt=prompt)
        chat = replace(chat, settings=chat.settings.model_copy(update={"model": summariser.model}))
    with writing():
        job = jobs.update(job, rt.now(), status="processing")
    model = _PaidModel(rt, job, video, chat)
    try:
        result = summariser.write(source, required_documents(rt, video), model.ask)
    except UnusableReply:
        paid_calls.void(model.last_key)  # a retry must make a new call and not read this answer again
        raise
    return _settle_summary(rt, job, video, result, source.summary_type, summariser)


class _PaidModel:
    """The paid calls of one job. The answer of each is stored and reused, so that no answer is paid for twice."""

    def __init__(self, rt: Processing, job: ProcessingJob, video: ProcessingVideo, chat: ChatClient | None) -> None:
        self._rt, self._job, self._video, self._chat = rt, job, video, chat
        # A summary that is made again has calls of its own: the answers of the last one are not read.
        repeat = int(job.work.get("round", 0))
        self._prefix = f"{job.id}/again-{repeat}" if repeat else job.id
        self._honours_key = rt.settings.summarization.openai.honours_idempotency_key
        self.last_key = ""

    def ask(self, part: str, system: str, user: str) -> ModelReply:
        chat, number = self._chat, 1
        if chat is None:
            raise ProviderError("no model is configured", "refused", "no_model")
        while (known := paid_calls.find(key := f"{self._prefix}/{part}/{number}")) is not None:
            self.last_key = key
            if known.answer is not None:
                return ModelReply(**json.loads(known.answer))
            # Its outcome is unknown. Only an endpoint that honours the key may get the same call again.
            if known.state in ("started", "unknown") and self._honours_key:
                return self._call(chat, key, system, user, is_repeat=True)
            if known.state == "started":
                reason = "the process ended during the call"
                self._give_up(key, reason, reason)
            # `unknown` was a dead letter that an operator retried, `free` and `paid` left no answer: a new call.
            number += 1
        if self._rt.stopping.is_set():
            raise WorkerStopping("the worker shuts down")
        with writing():
            reserve(self._rt, key, self._job.id, "openai", chat.estimate(system, user))
            self._job = jobs.update(self._job, self._rt.now(), estimated_cost_usd=paid_calls.spent_on(self._job.id))
        return self._call(chat, key, system, user)

    def _call(self, chat: ChatClient, key: str, system: str, user: str, *, is_repeat: bool = False) -> ModelReply:
        """A crash in here leaves the call `started`: the next attempt treats it as a call of unknown outcome."""
        self.last_key = key
        self._rt.failpoint("summarise.asking")
        started = time.monotonic()
        try:
            with recorded_calls():
                reply = chat.complete(system, user, key=key)
        except UnusableReply as error:
            self._record_payment(key, error.reply, chat.price(error.reply), started, keep=False)
            raise
        except ProviderError as error:
            # A clear refusal of a first call is free; of a repeated one it says nothing about the first. A request
            # that was sent and has no answer may have been paid: it stays `started` where the key is honoured.
            if error.fault != "unknown" and not is_repeat:
                with writing():
                    book(self._rt, key, "free")
            elif not self._honours_key:
                self._give_up(key, str(error), error.cause)
            raise
        self._rt.failpoint("summarise.answered")
        self._record_payment(key, reply, chat.price(reply), started, keep=True)
        return reply

    def _give_up(self, key: str, reason: str, cause: str) -> NoReturn:
        with writing():
            book(self._rt, key, "unknown")
            known = paid_calls.find(key)
        below = self._rt.settings.summarization.openai.retry_unknown_below_usd
        if known is not None and known.estimate < below:
            raise CheapOutcomeUnknown(reason, cause)
        raise OutcomeUnknown(reason, cause)

    def _record_payment(self, key: str, reply: ModelReply, price: Decimal, started: float, *, keep: bool) -> None:
        now, tokens = self._rt.now(), reply.input_tokens + reply.output_tokens
        answer = json.dumps(asdict(reply)) if keep else None
        call: dict[str, Any] = {
            "duration_ms": round(1000 * (time.monotonic() - started), 1),
            "tokens_used": tokens,
            "api_cost_usd": price,
            "api_method": "POST",
            "api_response_code": 200,
            "api_endpoint": f"{self._rt.settings.summarization.openai.base_url}/chat/completions",
        }
        with writing():
            book(self._rt, key, "paid", actual=price, tokens=tokens, answer=answer)
            scope = job_scope(self._rt, self._job, self._video)
            audit.write(scope, "complete", "success", now, event_type="api_call", **call)
            if keep:
                note_success(self._rt, self._rt.summariser.name, is_paid=True)
            alert_near_limit(self._rt)
        self._rt.failpoint("summarise.booked")


def _settle_summary(
    rt: Processing,
    job: ProcessingJob,
    video: ProcessingVideo,
    result: SummaryResult,
    summary_type: SummaryType,
    summariser: Summariser,
) -> list[StepWake]:
    """Files first, then one transaction: a crash between them writes the same files again."""
    now, cost = rt.now(), paid_calls.spent_on(job.id)
    bullets = result.summary.bullets[: rt.settings.summarization.max_bullets]
    brief = replace(result, summary=result.summary.changed(bullets=bullets))
    short = rt.artifacts.write(video.id, "summary.md", "summary", _markdown(video, brief))
    full = rt.artifacts.write(video.id, "summary.json", "summary_json", result.summary.model_dump_json())
    files = [rt.artifacts.write(video.id, FILE_NAMES[kind], kind, text) for kind, text in result.documents.items()]
    title, detailed_id = video.doc.title, None
    if summary_type == "detailed":
        text = _markdown(video, result)
        files.append(rt.artifacts.write(video.id, "summary-detailed.md", "summary_detailed", text))
        long = KeptDocument("summary_detailed", video.id, title, text, files[-1].artifact_id)
        detailed_id = keep("document", partial(rt.documents.put, long))
    brief_text = _markdown(video, brief)
    kept = KeptDocument("summary", video.id, title, brief_text, short.artifact_id)
    short_id = keep("document", partial(rt.documents.put, kept))
    memory_refs = _remember(rt, video, brief_text)
    rt.failpoint("summarise.written")
    transcript_id = video.doc.drive_refs.transcript_id if video.doc.drive_refs else None
    with writing():
        for artifact in (short, full, *files):
            artifacts.put(artifact, now)
        jobs.settle(
            job,
            now,
            status="completed",
            completed_at=clock.iso(now),
            attempt_count=job.attempts + 1,
            summary=result.summary.model_dump(),
            summary_type=summary_type,
            **_prompt_of(summariser),
            drive_refs={"short_summary_id": short_id, "detailed_summary_id": detailed_id},
            **memory_refs,
            model_used=result.model,
            input_tokens=result.input_tokens,
            output_tokens=result.output_tokens,
            estimated_cost_usd=cost,
            error_message=None,
            work={"first_failure_at": None},
        )
        refs = {"transcript_id": transcript_id, "summary_id": short_id}
        reference = f"jobs/summarization/{job.id}"
        video = videos.move(
            video,
            "summarized",
            now,
            summary_doc_ref=reference,
            last_error=None,
            drive_refs=refs,
            zep_doc_id=memory_refs.get("zep_doc_id"),
        )
        dead_jobs.resolve_retried(job.id, now)
        usage: dict[str, Any] = {"api_cost_usd": cost, "tokens_used": result.input_tokens + result.output_tokens}
        scope, words = job_scope(rt, job, video), f"{len(result.summary.bullets)} bullets"
        audit.write(scope, "summarized", "success", now, tool_name=result.model, data_summary=words, **usage)
        wakes = complete_outputs(rt, video, now)
    rt.failpoint("summarise.committed")
    log.info("video summarized", video_id=video.id, model=result.model, cost=str(cost))
    return wakes


def _remember(rt: Processing, video: ProcessingVideo, text: str) -> dict[str, Any]:
    if rt.memory is None:
        return {}
    doc, tags = video.doc, tuple(video.doc.tags or ())
    memory = Memory(video.id, doc.title, video.url, doc.channel_title, text, tags)
    return {
        "zep_doc_id": keep("memory", partial(rt.memory.put, memory)),
        "zep_collection": rt.memory.collection,
    }


def _prompt_of(summariser: Summariser) -> dict[str, Any]:
    prompt = getattr(summariser, "prompts", {}).get("summary")
    return {} if prompt is None else {"prompt_id": prompt.id, "prompt_version": prompt.version}


def required_documents(rt: Processing, video: ProcessingVideo) -> tuple[DocumentKind, ...]:
    return tuple(dict.fromkeys(kind for route in _routes(rt, video) for kind in route.documents))


def complete_outputs(rt: Processing, video: ProcessingVideo, now: float) -> list[StepWake]:
    """Within a transaction: announce a summarized video, and reopen its job when documents are missing.

    The specification leads from `summarized` back to `transcribed` only through `failed`; both changes are one
    commit. Paid calls that have an answer are not repeated.
    """
    job = jobs.find(jobs.job_id(jobs.SUMMARIZATION, video.id))
    if video.status != "summarized" or job is None or not isinstance(job.doc, SummarizationJobDocument):
        return []
    if any(route.notify for route in _routes(rt, video)):  # the subject makes it one notice per video
        bullets = job.doc.summary.bullets
        body = f"{plain_line(bullets[0]) if bullets else ''}\n{video.url}".strip()
        if not notices.replace(f"found:{video.id}", f"video:{video.id}", video.doc.title, body):
            due_at = now + rt.settings.notifications.window
            notices.add(f"video:{video.id}", video.doc.title, body, due_at=due_at, now=now)
    written = {artifact.kind for artifact in artifacts.of_video(video.id)}
    missing = [kind for kind in required_documents(rt, video) if kind not in written]
    if not missing:
        return []
    videos.move(videos.move(video, "failed", now), "transcribed", now)
    jobs.reopen(job, now, was="completed")
    audit.write(job_scope(rt, job, video), "resume", "success", now, data_summary=f"for {', '.join(missing)}")
    return [wake_job(job.id)]


def _routes(rt: Processing, video: ProcessingVideo) -> list[SignalRoute]:
    names = dict.fromkeys([video.pipeline, *received_events.pipelines_of(video.id)])
    return [rt.settings.routes[name] for name in names if name in rt.settings.routes]


def _markdown(video: ProcessingVideo, result: SummaryResult) -> str:
    summary = result.summary
    parts = [
        f"# {markdown_line(video.doc.title)}",
        f"{markdown_line(video.doc.channel_title)} · {video.doc.published_at} · {video.url}",
        summary.executive_summary or "",
        "## Main points",
        "\n".join(f"- {line}" for line in summary.bullets),
        "## Key concepts",
        ", ".join(summary.key_concepts) or "none",
        f"*Written by {result.model}.*",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
