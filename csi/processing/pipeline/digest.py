"""The day on one page, as Markdown and as HTML: what was summarised, what was only noticed, what went wrong."""

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from csi.processing.documents import RunEventDocument, SummarizationJobDocument
from csi.processing.runtime import Processing, day_span
from csi.processing.sanitize import markdown_line, plain_line, safe_link
from csi.processing.store import artifacts, jobs, notices, signals, videos
from csi.processing.store.artifacts import Artifact
from csi.processing.store.db import writing

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"


@dataclass(frozen=True)
class Entry:
    """One video for the reader."""

    title: str
    channel: str
    url: str
    pipeline: str
    status: str
    bullets: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Digest:
    """The text in both forms."""

    markdown: str
    html: str


def make_digest(rt: Processing, run: RunEventDocument) -> Digest:
    start, end = day_span(run.run_id)
    done = [_entry(video) for video in videos.reached("summarized", start, end)]
    noticed = [_noticed(signal) for signal in signals.between(start, end, "digest")]
    missed = [_entry(video) for status in ("failed", "skipped") for video in videos.reached(status, start, end)]
    words = {"run": run, "done": done, "noticed": noticed, "missed": missed}
    return Digest(
        _environment(html=False).get_template("digest.md").render(words),
        _environment(html=True).get_template("digest.html").render(words),
    )


def write_digest(rt: Processing, run: RunEventDocument, *, announce: bool) -> list[Artifact]:
    digest, now = make_digest(rt, run), rt.now()
    made = [
        rt.artifacts.write(None, f"digest-{run.run_id}.md", "digest", digest.markdown),
        rt.artifacts.write(None, f"digest-{run.run_id}.html", "digest_html", digest.html),
    ]
    rt.failpoint("digest.written")
    with writing():
        for artifact in made:
            artifacts.put(artifact, now)
        if announce:
            notices.add(f"digest:{run.run_id}", f"CSI digest of {run.run_id}", digest.markdown, due_at=now, now=now)
    return made


def _entry(video_id: str) -> Entry:
    video = videos.get(video_id)
    job = jobs.find(jobs.job_id(jobs.SUMMARIZATION, video_id))
    doc = job.doc if job else None
    bullets = doc.summary.bullets if isinstance(doc, SummarizationJobDocument) else []
    return Entry(
        title=plain_line(video.doc.title),
        channel=plain_line(video.doc.channel_title),
        url=safe_link(video.url),
        pipeline=video.pipeline,
        status=video.status,
        bullets=tuple(plain_line(bullet, 2000) for bullet in bullets),
        reason=plain_line(video.doc.last_error),
    )


def _noticed(signal: signals.Signal) -> Entry:
    subject = signal.event.get("subject") or {}
    link, channel = safe_link(subject.get("url")), plain_line(subject.get("channel_id"), 200)
    return Entry(plain_line(signal.title), channel, link, signal.pipeline, "noticed")


def _environment(*, html: bool) -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=html,  # noqa: S701 Markdown is not HTML; its filter keeps a title on its line
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["line"] = markdown_line
    return made
