"""Digests: what happened in a day, as Markdown and HTML; each is written at its hour, for all pipelines or for one."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from csi import clock
from csi.logs import log
from csi.processing.collection_models import SummarizationJobDocument
from csi.processing.runtime import Processing, day_span
from csi.processing.sanitize import markdown_line, plain_line, safe_link
from csi.processing.settings import DigestTime
from csi.processing.store import artifacts, jobs, notices, paid_calls, received_events, runs, videos
from csi.processing.store.artifacts import Artifact
from csi.processing.store.db import writing
from csi.processing.store.videos import ProcessingVideo

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
COMMON = "all"
"""The name of the digest of all pipelines that have none of their own."""
MOST_LATE = 7
"""After a longer absence of the worker the digests of the last days are written, and no older ones."""


@dataclass(frozen=True)
class DigestSpan:
    """What a digest covers. `pipeline` None: every pipeline but those in `without`, and the money."""

    day: str
    start: float
    end: float
    pipeline: str | None = None
    without: frozenset[str] = frozenset()

    def covers(self, pipeline: str) -> bool:
        return pipeline == self.pipeline if self.pipeline else pipeline not in self.without

    @property
    def file_name(self) -> str:
        return f"digest-{self.day}" + (f"-{self.pipeline}" if self.pipeline else "")


def whole_day(day: str, pipeline: str | None = None) -> DigestSpan:
    """A day in UTC, as on the pages."""
    return DigestSpan(day, *day_span(day), pipeline)


def write_due_digests(rt: Processing) -> None:
    """Each digest begins where the one before it ended, also when its hour was changed."""
    settings = rt.settings.digest
    for pipeline, times in ((None, settings), *settings.pipelines.items()):
        name = pipeline or COMMON
        begun = runs.digest_end(name) or runs.digest_end(COMMON) or runs.first_day_start()
        without = frozenset() if pipeline else frozenset(settings.pipelines)
        for start, end in _spans(times, rt.now(), begun) if begun is not None else ():
            last_day = datetime.fromtimestamp(end - 1, ZoneInfo(times.time_zone)).date()
            span = DigestSpan(last_day.isoformat(), start, end, pipeline, without)
            # The digest comes first: a crash before the commit writes it again and announces it once.
            if settings.enabled:
                write_digest(rt, span, announce=settings.notify)
            with writing():
                runs.mark_digest(span.day, name, end)
            log.info("digest written", day=span.day, pipeline=pipeline)


def _spans(times: DigestTime, now: float, begun: float) -> Iterator[tuple[float, float]]:
    """From hour to hour in the operator's zone, whose days have 23 to 25 hours; pure."""
    zone = ZoneInfo(times.time_zone)
    today = datetime.fromtimestamp(now, UTC).astimezone(zone).date()
    hour = time.fromisoformat(times.at)
    ends = [datetime.combine(today - timedelta(days=back), hour, zone).timestamp() for back in range(MOST_LATE, -1, -1)]
    for before, end in pairwise(ends):
        if begun < end <= now:
            yield max(begun, before), end


@dataclass(frozen=True)
class DigestEntry:
    """One item of the digest, as plain text."""

    title: str
    channel: str
    url: str
    pipeline: str
    status: str
    bullets: tuple[str, ...] = ()
    reason: str = ""


def make_digest(rt: Processing, span: DigestSpan) -> tuple[str, str]:
    """The digest as Markdown and as HTML."""

    def reached(status: str) -> list[ProcessingVideo]:
        found = (videos.get(video_id) for video_id in videos.reached(status, span.start, span.end))
        return [video for video in found if span.covers(video.pipeline)]

    signals = received_events.between(span.start, span.end, "digest")
    missed = {status: reached(status) for status in ("failed", "skipped")}
    facts = {
        "day": span.day,
        "pipeline": span.pipeline,
        "spent": None if span.pipeline else paid_calls.used_between(span.start, span.end),
        "budget": rt.settings.budget.daily_usd,
        "done": [_video_entry(video) for video in reached("summarized")],
        "noticed": [_signal_entry(signal) for signal in signals if span.covers(signal.pipeline)],
        "skipped": len(missed["skipped"]),
        "failed": len(missed["failed"]),
        "missed": [_video_entry(video) for found in missed.values() for video in found],
    }
    markdown = _environment(html=False).get_template("digest.md").render(facts)
    return markdown, _environment(html=True).get_template("digest.html").render(facts)


def write_digest(rt: Processing, span: DigestSpan, *, announce: bool) -> list[Artifact]:
    (markdown, html), now = make_digest(rt, span), rt.now()
    files = [
        rt.artifacts.write(None, f"{span.file_name}.md", "digest", markdown),
        rt.artifacts.write(None, f"{span.file_name}.html", "digest_html", html),
    ]
    rt.failpoint("digest.written")
    with writing():
        for artifact in files:
            artifacts.put(artifact, now)
        if announce:  # the subject makes it one notice, also when a crash repeats this step
            subject, of = f"digest:{span.pipeline or ''}:{clock.iso(span.end)}", span.pipeline or "CSI"
            notices.add(subject, f"{of} digest of {span.day}", markdown, due_at=now, now=now)
    return files


def _video_entry(video: ProcessingVideo) -> DigestEntry:
    job = jobs.find(jobs.job_id(jobs.SUMMARIZATION, video.id))
    doc = job.doc if job else None
    bullets = doc.summary.bullets if isinstance(doc, SummarizationJobDocument) else []
    return DigestEntry(
        title=plain_line(video.doc.title),
        channel=plain_line(video.doc.channel_title),
        url=safe_link(video.url),
        pipeline=video.pipeline,
        status=video.status,
        bullets=tuple(plain_line(bullet, 2000) for bullet in bullets),
        reason=plain_line(video.doc.last_error),
    )


def _signal_entry(signal: received_events.Signal) -> DigestEntry:
    subject = signal.event.get("subject") or {}
    channel, url = plain_line(subject.get("channel_id"), 200), safe_link(subject.get("url"))
    return DigestEntry(plain_line(signal.title), channel, url, signal.pipeline, "noticed")


def _environment(*, html: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=html,  # noqa: S701 Markdown is not HTML; the filter `line` escapes Markdown
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = markdown_line
    return environment
