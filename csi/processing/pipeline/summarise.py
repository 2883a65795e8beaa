"""One turn of a summarisation job: every paid answer is a row before anything is made of it."""

import json
import time
from decimal import Decimal
from typing import Any, NoReturn

from csi import clock
from csi.errors import CsiError
from csi.logs import log
from csi.processing.documents import SummaryRefs, TranscriptionJobDocument, VideoRefs
from csi.processing.pipeline.budget import BudgetSpent, note_spent, reserve, watch
from csi.processing.pipeline.failure import bury, scope_of, settle_failure, take
from csi.processing.pipeline.route_outputs import catch_up, documents_of
from csi.processing.providers.base import Material, ProviderError, Reply, Written
from csi.processing.providers.openai import ChatClient, TruncatedReply
from csi.processing.runtime import Processing
from csi.processing.sanitize import markdown_line
from csi.processing.store import artifacts, audit, jobs, paid_calls, videos
from csi.processing.store.db import writing
from csi.processing.store.jobs import Job, LostLease
from csi.processing.store.paid_calls import Call
from csi.processing.store.videos import Video
from csi.processing.wake import Wake, wake_job

NAMES = {"concept": "CONCEPT.md", "implementation": "IMPLEMENTATION.md"}


class OutcomeUnknown(ProviderError):
    """A paid call without an answer, at an endpoint that cannot tell us what became of it: a person must look."""

    def __init__(self, why: str) -> None:
        words = f"{why}; whether the call was carried out and paid is not known"
        super().__init__(words, fault="unknown", code="outcome_unknown")


class Leaving(CsiError):
    """The process ends: a call that began now would be cut off, and nobody would know whether it was paid."""


def summarise(rt: Processing, job_id: str) -> list[Wake]:
    job = take(rt, job_id)
    if job is None:
        return []
    rt.failpoint("summarise.claimed")
    try:
        return _turn(rt, job)
    except OutcomeUnknown as error:
        with writing():
            bury(rt, jobs.reread(job), videos.get(job.video_id), error, "manual_intervention", can_retry=True)
        return []
    except TruncatedReply as error:
        return settle_failure(rt, jobs.reread(job), error, answered=True)
    except ProviderError as error:
        return settle_failure(rt, jobs.reread(job), error)
    except BudgetSpent as spent:
        with writing():
            note_spent(rt)
            jobs.settle(jobs.reread(job), rt.now(), next_at=spent.until, error_message=str(spent))
        return [wake_job(job.id, spent.until)]
    except Leaving:
        with writing():
            jobs.settle(jobs.reread(job), rt.now(), api_tries=job.api_tries)
        return [wake_job(job.id)]
    except LostLease:
        log.info("job was taken by another worker", job_id=job_id)
        return []


def _turn(rt: Processing, job: Job) -> list[Wake]:
    video = videos.get(job.video_id)
    settings = rt.settings.summarization
    material = Material(
        title=video.doc.title,
        channel=video.doc.channel_title,
        url=video.url,
        text=_transcript(job),
        max_bullets=settings.max_bullets,
        focus_areas=settings.focus_areas,
    )
    with writing():
        job = jobs.note(job, rt.now(), status="processing")
    asker = _Asker(rt, job, video)
    try:
        written = rt.summariser.write(material, documents_of(rt, video), asker.ask)
    except TruncatedReply:
        asker.void()
        raise
    return _settle_summary(rt, job, video, written)


def _transcript(job: Job) -> str:
    found = jobs.find(jobs.job_id(jobs.TRANSCRIPTION, job.video_id))
    doc = found.doc if found else None
    text = doc.transcript_text if isinstance(doc, TranscriptionJobDocument) else None
    if not text:
        raise ProviderError("its transcript is gone", fault="refused", code="no_transcript")
    return text


class _Asker:
    """Paid calls of one job, each made once: an answer that was paid for is never asked for again."""

    def __init__(self, rt: Processing, job: Job, video: Video) -> None:
        self._rt, self._job, self._video = rt, job, video
        self._last = ""

    def ask(self, part: str, system: str, user: str) -> Reply:
        chat = self._rt.chat
        if chat is None:
            raise ProviderError("no model is configured", fault="refused", code="no_model")
        number = 1
        while (known := paid_calls.find(self._key(part, number))) is not None:
            self._last = known.call_key
            if known.answer is not None:
                return Reply(**json.loads(known.answer))
            if self._may_resend(known):
                return self._call(chat, known.call_key, system, user, again=True)
            number += 1
        return self._first_call(chat, self._key(part, number), system, user)

    def void(self) -> None:
        """The last answer is no summary: paid for, but not to be used again."""
        paid_calls.void(self._last)

    def _may_resend(self, known: Call) -> bool:
        """A call whose end nobody saw. Only an endpoint that honours the key may be asked the same again.

        `started` is ours to decide; `unknown` was given to a person, who had it tried again, and that is a new call.
        """
        if known.state == "started" and not self._honours_key:
            self._give_up(known.call_key, "the process ended in the middle of it")
        return known.state in ("started", "unknown") and self._honours_key

    def _give_up(self, key: str, why: str) -> NoReturn:
        with writing():
            paid_calls.finish(key, "unknown", self._rt.now())
        raise OutcomeUnknown(why)

    @property
    def _honours_key(self) -> bool:
        return self._rt.settings.summarization.openai.honours_idempotency_key

    def _first_call(self, chat: ChatClient, key: str, system: str, user: str) -> Reply:
        if self._rt.leaving.is_set():
            raise Leaving("the process ends")
        with writing():
            reserve(self._rt, key, self._job.id, "openai", chat.estimate(system, user))
            self._job = jobs.note(self._job, self._rt.now(), estimated_cost_usd=paid_calls.spent_on(self._job.id))
        return self._call(chat, key, system, user)

    def _call(self, chat: ChatClient, key: str, system: str, user: str, *, again: bool = False) -> Reply:
        self._last = key
        self._rt.failpoint("summarise.asking")
        started = time.monotonic()
        try:
            reply = chat.complete(system, user, key=key)
        except TruncatedReply as error:
            self._book(key, error.reply, chat.price(error.reply), started, keep=False)
            raise
        except ProviderError as error:
            self._book_failure(key, error, again=again)
            raise
        self._rt.failpoint("summarise.answered")
        self._book(key, reply, chat.price(reply), started, keep=True)
        return reply

    def _book_failure(self, key: str, error: ProviderError, *, again: bool) -> None:
        """A clear no to a first call is free; to a repeated one it says nothing about the first.

        A request that left and has no answer is like a crash in the middle of it: it may have been paid, so it stays
        `started` for an endpoint that honours the key, and else a person must look.
        """
        if error.fault != "unknown" and not again:
            with writing():
                paid_calls.finish(key, "free", self._rt.now())
        elif not self._honours_key:
            self._give_up(key, str(error))

    def _book(self, key: str, reply: Reply, price: Decimal, started: float, *, keep: bool) -> None:
        now, tokens = self._rt.now(), reply.input_tokens + reply.output_tokens
        fields = ("text", "model", "input_tokens", "output_tokens", "usage_known")
        answer = json.dumps({name: getattr(reply, name) for name in fields}) if keep else None
        with writing():
            paid_calls.finish(key, "paid", now, actual=price, tokens=tokens, answer=answer)
            audit.write(
                scope_of(self._rt, self._job, self._video),
                "complete",
                "success",
                now,
                event_type="api_call",
                duration_ms=round(1000 * (time.monotonic() - started), 1),
                tokens_used=tokens,
                api_cost_usd=price,
                api_method="POST",
                api_endpoint=f"{self._rt.settings.summarization.openai.base_url}/chat/completions",
            )
            watch(self._rt)
        self._rt.failpoint("summarise.booked")

    def _key(self, part: str, number: int) -> str:
        return f"{self._job.id}/{part}/{number}"


def _settle_summary(rt: Processing, job: Job, video: Video, written: Written) -> list[Wake]:
    """Files first, then one transaction for everything that follows."""
    now, cost = rt.now(), paid_calls.spent_on(job.id)
    short = rt.artifacts.write(video.id, "summary.md", "summary", _markdown(video, written))
    made = [short, rt.artifacts.write(video.id, "summary.json", "summary_json", written.summary.model_dump_json())]
    made += [rt.artifacts.write(video.id, NAMES[kind], kind, text) for kind, text in written.documents.items()]
    rt.failpoint("summarise.written")
    refs = SummaryRefs(short_summary_id=short.artifact_id, detailed_summary_id=made[1].artifact_id)
    transcript_id = video.doc.drive_refs.transcript_id if video.doc.drive_refs else None
    with writing():
        for artifact in made:
            artifacts.put(artifact, now)
        _complete(job, written, refs, cost, now)
        video = videos.move(
            video,
            "summarized",
            now,
            summary_doc_ref=f"jobs/summarization/{job.id}",
            last_error=None,
            drive_refs=VideoRefs(transcript_id=transcript_id, summary_id=short.artifact_id).model_dump(),
        )
        audit.write(
            scope_of(rt, job, video),
            "summarized",
            "success",
            now,
            tool_name=written.model,
            data_summary=f"{len(written.summary.bullets)} bullets",
            api_cost_usd=cost,
            tokens_used=written.input_tokens + written.output_tokens,
        )
        wakes = catch_up(rt, video, now)
    rt.failpoint("summarise.committed")
    log.info("video summarized", video_id=video.id, model=written.model, cost=str(cost))
    return wakes


def _complete(job: Job, written: Written, refs: SummaryRefs, cost: Decimal, now: float) -> None:
    jobs.settle(
        job,
        now,
        status="completed",
        completed_at=clock.iso(now),
        attempt_count=job.attempts + 1,
        summary=written.summary.model_dump(),
        drive_refs=refs.model_dump(),
        model_used=written.model,
        input_tokens=written.input_tokens,
        output_tokens=written.output_tokens,
        estimated_cost_usd=cost,
        error_message=None,
    )


def _markdown(video: Video, written: Written) -> str:
    summary: Any = written.summary
    parts = [
        f"# {markdown_line(video.doc.title)}",
        f"{markdown_line(video.doc.channel_title)} · {video.doc.published_at} · {video.url}",
        summary.executive_summary or "",
        "## Main points",
        "\n".join(f"- {line}" for line in summary.bullets),
        "## Key concepts",
        ", ".join(summary.key_concepts) or "none",
        f"*Written by {written.model}.*",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
