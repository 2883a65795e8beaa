"""The daily run. Every number is counted from rows."""

from csi import clock
from csi.errors import CsiError
from csi.logs import log, redact
from csi.processing.collection_models import AgentStats, RunEventDocument, RunStatus, RunTrigger
from csi.processing.pipeline.operator_log import log_action
from csi.processing.runtime import Processing, day_span
from csi.processing.sanitize import plain_text
from csi.processing.store import dead_jobs, paid_calls, runs, videos
from csi.processing.store.db import writing

COUNTED = ("discovered", "transcription_queued", "transcribed", "summarized", "failed", "skipped")


def update_runs(rt: Processing) -> None:
    """Complete the runs of past days, and store today's run as it is now."""
    today = rt.today()
    for day in runs.unfinished(before=today):
        doc = describe_run(rt, day)
        rt.failpoint("run.written")
        with writing():
            runs.put(doc)
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
    status: RunStatus = "running" if busy else "planned"
    if rt.now() >= end:  # a day in which jobs failed and no video was summarised has failed
        in_vain = counts["summarized"] == 0 and (counts["failed"] > 0 or dead > 0)
        status = "failed" if in_vain else "completed"
    elif settings.paused:
        status = "paused"
    # By whom: a day whose videos all came by command, one by one or in lists, is the operator's.
    origins = videos.origins(start, end)
    trigger: RunTrigger = "backfill" if origins and "signal" not in origins else "schedule"
    if origins == {"manual"}:
        trigger = "manual"
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
        triggered_by=trigger,
        configuration_snapshot=known.configuration_snapshot if known else settings.snapshot(),
        notes=known.notes if known else None,
    )


def note_run(rt: Processing, day: str, text: str) -> None:
    """Replace the notes of a run; an empty text removes them. CsiError: there was no run, or the text has a secret."""
    if redact(text) != text:
        raise CsiError("the note contains something that looks like a secret; leave it out, nothing was stored")
    with writing():
        if day != rt.today() and runs.find(day) is None:
            raise CsiError(f"there was no run on {day}; see: csi runs list")
        runs.put(describe_run(rt, day).changed(notes=plain_text(text, 10_000) or None))
        log_action(rt, "run_note", text, kind="run", name=day)
