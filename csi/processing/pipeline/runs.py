"""The daily run and its digest, as Markdown and HTML. Every number is counted from rows."""

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from csi import clock
from csi.logs import log
from csi.processing.collection_models import AgentStats, RunEventDocument, RunStatus, SummarizationJobDocument
from csi.processing.runtime import Processing, day_span
from csi.processing.sanitize import markdown_line, plain_line, safe_link
from csi.processing.store import artifacts, dead_jobs, jobs, notices, paid_calls, received_events, runs, videos
from csi.processing.store.artifacts import Artifact
from csi.processing.store.db import writing

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
COUNTED = ("discovered", "transcription_queued", "transcribed", "summarized", "failed", "skipped")


def update_runs(rt: Processing) -> None:
    """Complete the runs of past days with their digests, and store today's run as it is now."""
    today = rt.today()
    for day in runs.unfinished(before=today):
        doc = describe_run(rt, day)
        # The digest comes first: a crash before the commit writes it again and announces it once.
        if rt.settings.digest.enabled:
            write_digest(rt, doc, announce=rt.settings.digest.notify)
        rt.failpoint("run.written")
        with writing():
            runs.put(doc)
            runs.mark(day, "digest", "written", rt.now())
        log.info("run completed", run_id=day, summarized=doc.summarized, failed=doc.failed)
    with writing():
        runs.put(describe_run(rt, today))


def describe_run(rt: Processing, day: str) -> RunEventDocument:
    """The run of a day, counted now. It only reads."""
    start, end = day_span(day)
    known, settings = runs.find(day), rt.settings
    counts = {name: len(videos.reached(name, start, end)) for name in COUNTED}
    totals = runs.audit_totals(start, end)
    busy = any(counts.values()) or totals["api_calls"] > 0
    dead = dead_jobs.moved_between(start, end)
    in_vain = counts["summarized"] == 0 and (counts["failed"] > 0 or dead > 0)
    status = _status(settings.paused, busy=busy, over=rt.now() >= end, in_vain=in_vain)
    ended = counts["summarized"] + counts["failed"]
    started_at = known.started_at if known else None
    return RunEventDocument(
        run_id=day,
        planned_videos=min(videos.planned(start, end), settings.limits.videos_per_day),
        planned_budget_usd=known.planned_budget_usd if known else settings.budget.daily_usd,
        planned_start_time=clock.iso(start),
        planned_end_time=clock.iso(end),
        status=status,
        started_at=started_at or (clock.iso(rt.now()) if busy else None),
        completed_at=clock.iso(end) if status in ("completed", "failed") else None,
        **counts,
        dlq=dead,
        budget_used_usd=paid_calls.used(day),
        api_calls_made=totals["api_calls"],
        tokens_consumed=paid_calls.tokens_between(start, end),
        success_rate=round(100 * counts["summarized"] / ended, 2) if ended else 0.0,
        average_processing_time_sec=round(runs.average_seconds(start, end), 3),
        error_categories=totals["errors"],
        agent_stats={name: AgentStats(**stats) for name, stats in totals["agents"].items()},
        quota_limits_hit=runs.marks(day, "quota"),
        policies_enforced=runs.marks(day, "policy"),
        triggered_by="schedule",
        configuration_snapshot=known.configuration_snapshot if known else settings.snapshot(),
        notes=known.notes if known else None,
    )


def _status(paused: bool, *, busy: bool, over: bool, in_vain: bool) -> RunStatus:
    """A day in which jobs failed and no video was summarised has failed."""
    if over:
        return "failed" if in_vain else "completed"
    if paused:
        return "paused"
    return "running" if busy else "planned"


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


def make_digest(rt: Processing, run: RunEventDocument) -> tuple[str, str]:
    """The digest as Markdown and as HTML."""
    start, end = day_span(run.run_id)
    facts = {
        "run": run,
        "done": [_video_entry(video) for video in videos.reached("summarized", start, end)],
        "noticed": [_signal_entry(signal) for signal in received_events.between(start, end, "digest")],
        "missed": [
            _video_entry(name) for status in ("failed", "skipped") for name in videos.reached(status, start, end)
        ],
    }
    markdown = _environment(html=False).get_template("digest.md").render(facts)
    return markdown, _environment(html=True).get_template("digest.html").render(facts)


def write_digest(rt: Processing, run: RunEventDocument, *, announce: bool) -> list[Artifact]:
    (markdown, html), now = make_digest(rt, run), rt.now()
    files = [
        rt.artifacts.write(None, f"digest-{run.run_id}.md", "digest", markdown),
        rt.artifacts.write(None, f"digest-{run.run_id}.html", "digest_html", html),
    ]
    rt.failpoint("digest.written")
    with writing():
        for artifact in files:
            artifacts.put(artifact, now)
        if announce:  # the subject makes it one notice, also when a crash repeats this step
            notices.add(f"digest:{run.run_id}", f"CSI digest of {run.run_id}", markdown, due_at=now, now=now)
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
