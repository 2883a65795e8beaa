"""The day on one page, as Markdown and as HTML: what was summarised, what was only noticed, what went wrong."""

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from csi.processing.documents import RunEventDocument, SummarizationJobDocument
from csi.processing.runtime import Processing, day_span
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
    seen = signals.between(start, end, "digest")
    noticed = [_noticed(signal) for signal in seen]
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
    bullets = tuple(doc.summary.bullets) if isinstance(doc, SummarizationJobDocument) else ()
    told = video.doc
    return Entry(
        told.title, told.channel_title, video.url, video.pipeline, video.status, bullets, told.last_error or ""
    )


def _noticed(signal: signals.Signal) -> Entry:
    subject = signal.event.get("subject") or {}
    url = str(subject.get("url") or "")
    link = url if url.startswith("https://") else ""
    return Entry(signal.title, str(subject.get("channel_id") or ""), link, signal.pipeline, "noticed")


def _environment(*, html: bool) -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=html,  # noqa: S701 Markdown is not HTML; its filter keeps a title on its line
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["line"] = plain_line
    return made


def plain_line(text: str) -> str:
    """One line that cannot become a heading, a link or HTML of its own."""
    flat = " ".join(text.split())
    for letter in "\\`*_[]<>#|":
        flat = flat.replace(letter, f"\\{letter}")
    return flat
