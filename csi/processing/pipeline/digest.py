"""The daily digest as Markdown and HTML: summarized videos, other published items, failed and skipped videos."""

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from csi.processing.collection_models import RunEventDocument, SummarizationJobDocument
from csi.processing.runtime import Processing, day_span
from csi.processing.sanitize import markdown_line, plain_line, safe_link
from csi.processing.store import artifacts, jobs, notices, received_events, videos
from csi.processing.store.artifacts import Artifact
from csi.processing.store.db import writing

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"


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


@dataclass(frozen=True)
class DigestText:
    """The digest in both formats."""

    markdown: str
    html: str


def make_digest(rt: Processing, run: RunEventDocument) -> DigestText:
    start, end = day_span(run.run_id)
    facts = {
        "run": run,
        "done": [_video_entry(video) for video in videos.reached("summarized", start, end)],
        "noticed": [_signal_entry(signal) for signal in received_events.between(start, end, "digest")],
        "missed": [
            _video_entry(name) for status in ("failed", "skipped") for name in videos.reached(status, start, end)
        ],
    }
    return DigestText(
        _environment(html=False).get_template("digest.md").render(facts),
        _environment(html=True).get_template("digest.html").render(facts),
    )


def write_digest(rt: Processing, run: RunEventDocument, *, announce: bool) -> list[Artifact]:
    digest, now = make_digest(rt, run), rt.now()
    files = [
        rt.artifacts.write(None, f"digest-{run.run_id}.md", "digest", digest.markdown),
        rt.artifacts.write(None, f"digest-{run.run_id}.html", "digest_html", digest.html),
    ]
    rt.failpoint("digest.written")
    with writing():
        for artifact in files:
            artifacts.put(artifact, now)
        if announce:  # the subject makes it one notice, also when a crash repeats this step
            notices.add(f"digest:{run.run_id}", f"CSI digest of {run.run_id}", digest.markdown, due_at=now, now=now)
    return files


def _video_entry(video_id: str) -> DigestEntry:
    video = videos.get(video_id)
    job = jobs.find(jobs.job_id(jobs.SUMMARIZATION, video_id))
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
