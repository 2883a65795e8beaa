"""`csi processing`: from received signals to transcripts and summaries; what it did, what it cost, what failed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import clock, logs
from csi.cli.options import json_option
from csi.cli.output import SOME_FAILED, confirm, echo_json
from csi.cli.processing_session import processing_option, processing_session, redacted
from csi.cli.terminal import ago, plain, table
from csi.errors import CsiError, StoreError
from csi.processing import config, receiver_database, runtime
from csi.processing.pipeline import dead_letters as desk
from csi.processing.pipeline import digest as digests
from csi.processing.pipeline import maintenance, runs
from csi.processing.states import STATUSES
from csi.processing.store import artifacts, db, dead_jobs, heartbeats, jobs, notices, paid_calls, signals, videos
from csi.processing.store import export as exports

if TYPE_CHECKING:
    from csi.processing.documents import DeadLetterJobDocument
    from csi.processing.runtime import Processing

CONSUMER = ("-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1", "-g", "TERM", "-t", "25")
COLLECTIONS = (
    "videos",
    "jobs/transcription",
    "jobs/summarization",
    "audit_logs",
    "jobs_deadletter",
    "run_events",
)
_STATES = click.Choice(["open", "pending", "investigating", "resolved", "abandoned", "all"])


@click.group()
def processing() -> None:
    """Turn received signals into transcripts, summaries and a daily digest.

    It reads what `csi receiver` stored and has a database, a queue and a worker of its own. Without a configuration it
    uses YouTube's captions and an extractive summary: no key, no cost.
    """


@processing.command()
@processing_option
@click.option("--workers", default=4, show_default=True, type=click.IntRange(1, 64), help="Threads.")
def run(config_path: Path | None, workers: int) -> None:
    """Run the worker in the foreground: the Procfile's line, with --config passed on."""
    if config_path:
        os.environ[config.PATH] = str(config_path)
    config.read_secrets(config.load(config_path))
    line = [sys.executable, "-m", "huey.bin.huey_consumer", "tasks.processing.huey", "-w", str(workers), *CONSUMER]
    os.execv(sys.executable, line)  # noqa: S606 our own interpreter and module


@processing.command()
@processing_option
def check(config_path: Path | None) -> None:
    """Read the configuration and the secrets it needs; say what is wrong, or what will be done."""
    settings = config.load(config_path)
    runtime.create(settings, config.read_secrets(settings)).net.close()
    for name, route in sorted(settings.routes.items()):
        click.echo(f"{plain(name)}: {route.action}" + (f" + {', '.join(route.documents)}" if route.documents else ""))
    providers = ", ".join(settings.transcription.providers)
    click.echo(f"transcripts by {providers}; summaries by {settings.summarization.provider}")
    click.echo(f"at most {settings.budget.daily_usd} USD a day")


@processing.command()
@processing_option
@json_option
def status(config_path: Path | None, as_json: bool) -> None:
    """Show how far everything is, today's money, and what waits for somebody."""
    with processing_session(config_path) as rt:
        facts = _facts(rt)
    if as_json:
        echo_json(facts)
        return
    click.echo(f"worker         {facts['worker']}")
    click.echo(f"receiver       {plain(facts['receiver'])}")
    click.echo("videos         " + (", ".join(f"{n} {name}" for name, n in facts["videos"].items()) or "none yet"))
    click.echo(f"budget today   {facts['budget']['used_usd']} of {facts['budget']['daily_usd']} USD")
    click.echo(f"open jobs      {facts['open_jobs']}")
    click.echo(f"dead letters   {facts['dead_letters']}")
    click.echo(f"notices        {facts['waiting_notices']} waiting")
    for name, count in facts["unknown_pipelines"].items():
        click.echo(f"no route for   {plain(name)}: {count} signals wait; add it to routes")


def _facts(rt: Processing) -> dict[str, Any]:
    beat = heartbeats.last_heartbeat(maintenance.WORKER)
    known = videos.counts()
    return {
        "worker": "never ran" if beat is None else f"alive {ago(rt.now() - beat)} ago",
        "worker_beat_at": None if beat is None else clock.iso(beat),
        "receiver": _receiver(rt),
        "videos": {name: known[name] for name in STATUSES if name in known},
        "signals": signals.counts(),
        "unknown_pipelines": signals.unknown_pipelines(),
        "open_jobs": jobs.open_count(),
        "dead_letters": dead_jobs.open_count(),
        "waiting_notices": notices.waiting_count(),
        "budget": {"used_usd": str(paid_calls.used(rt.today())), "daily_usd": str(rt.settings.budget.daily_usd)},
        "paused": rt.settings.paused,
    }


def _receiver(rt: Processing) -> str:
    """What comes from there, or why nothing does."""
    path = rt.settings.receiver_db
    if not path.exists():
        return f"there is no database at {path} yet: is receiver_db (or {config.RECEIVER_DB}) right?"
    try:
        count = receiver_database.count_after(path, signals.cursor(), 1_000_000)
    except StoreError as error:
        return str(error)
    return f"{sum(signals.counts().values()):,} signals taken over, {count:,} wait"


@processing.command("list")
@processing_option
@json_option
@click.option("--status", "wanted", type=click.Choice(list(STATUSES)), help="Only these.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
def list_videos(config_path: Path | None, as_json: bool, wanted: str | None, limit: int) -> None:
    """List videos, the last changed first."""
    with processing_session(config_path):
        found = videos.page(limit, status=wanted)
    if as_json:
        echo_json([redacted(video.doc.shape()) for video in found])
        return
    rows = [(video.id, video.status, video.held or "", video.doc.updated_at, video.doc.title) for video in found]
    click.echo("\n".join(table(("video", "status", "waits for", "updated", "title"), rows)))


@processing.command()
@processing_option
@json_option
@click.argument("video_id")
def show(config_path: Path | None, as_json: bool, video_id: str) -> None:
    """Show one video's whole way: its steps, jobs, costs, artifacts and errors."""
    with processing_session(config_path) as rt:
        video = videos.find(video_id)
        if video is None:
            raise CsiError(f"there is no video {video_id}; see: csi processing list")
        found = jobs.of_video(video_id)
        told: dict[str, Any] = {
            "video": redacted(video.doc.shape()),
            "steps": [{"status": name, "at": clock.iso(at)} for name, at in videos.steps(video_id)],
            "jobs": [redacted(job.doc.shape()) | {"cost_usd": str(paid_calls.spent_on(job.id))} for job in found],
            "artifacts": {one.kind: str(rt.settings.artifacts / one.path) for one in artifacts.of_video(video_id)},
        }
    if as_json:
        echo_json(told)
        return
    click.echo(f"{plain(video.doc.title)}\n{plain(video.url)}\n{video.status} ({video.doc.processing_stage})")
    for step in told["steps"]:
        click.echo(f"  {step['at']}  {step['status']}")
    for job in told["jobs"]:
        words = plain(job.get("error_message", ""), 100)
        click.echo(f"  {job['job_id']}: {job['status']}, {job['cost_usd']} USD {words}".rstrip())
    for kind, path in told["artifacts"].items():
        click.echo(f"  {kind}: {path}")


@processing.command()
@processing_option
@click.option("--collection", required=True, type=click.Choice(COLLECTIONS), help="Which documents.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file instead of standard output.")
def export(config_path: Path | None, collection: str, out: Path | None) -> None:
    """Print a collection as JSON lines in the specification's exact shape."""
    with processing_session(config_path):
        lines = (
            json.dumps(redacted(doc.shape()), ensure_ascii=False) + "\n"
            for doc in exports.collection_documents(collection)
        )
        if out is None:
            for line in lines:
                click.echo(line, nl=False)
            return
        try:
            with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as error:
            raise CsiError(f"{out}: the export cannot be written: {error.strerror}") from error


@processing.command()
@processing_option
@click.option("--day", help="YYYY-MM-DD. [default: today]")
@click.option("--html", is_flag=True, help="HTML instead of Markdown.")
def digest(config_path: Path | None, day: str | None, html: bool) -> None:
    """Print the digest of a day, as it is now."""
    with processing_session(config_path) as rt:
        made = digests.make_digest(rt, runs.describe_run(rt, checked_day(day) if day else rt.today()))
    click.echo(logs.redact(made.html if html else made.markdown))


def checked_day(text: str) -> str:
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise click.BadParameter(f"{text[:20]!r} is not a day; write it as 2026-02-22") from error


@processing.command()
@processing_option
def release(config_path: Path | None) -> None:
    """Let what waits for tomorrow's limit be looked at again now, after you raised it."""
    with processing_session(config_path) as rt, db.writing():
        click.echo(f"{videos.release_deferred(rt.now())} videos are looked at again")


@processing.group()
def dlq() -> None:
    """Look at jobs that failed for good, take them over, try them again or give them up."""


@dlq.command("list")
@processing_option
@json_option
@click.option("--status", "state", type=_STATES, default="open", show_default=True)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
def list_letters(config_path: Path | None, as_json: bool, state: str, limit: int) -> None:
    """List dead letters, the newest first."""
    with processing_session(config_path):
        found = dead_jobs.search(status=None if state == "open" else state, limit=limit)
    if as_json:
        echo_json([redacted(letter.doc.shape()) for letter in found])
        return
    head = ("job", "status", "priority", "level", "failure", "attempts", "assigned", "died", "error")
    rows = [_row(letter.doc) for letter in found]
    click.echo("\n".join(table(head, rows)) if rows else "no dead letters")


def _row(doc: DeadLetterJobDocument) -> tuple[str, ...]:
    level, attempts = str(doc.escalation_level), str(doc.total_attempts)
    return (
        doc.job_id,
        doc.dlq_status,
        doc.priority,
        level,
        doc.failure_type,
        attempts,
        logs.redact(doc.assigned_to or ""),
        doc.moved_to_dlq_at,
        logs.redact(doc.final_error),
    )


@dlq.command("show")
@processing_option
@json_option
@click.argument("job_id")
def show_letter(config_path: Path | None, as_json: bool, job_id: str) -> None:
    """Show one dead letter whole."""
    with processing_session(config_path):
        doc = redacted(desk.get(job_id).doc.shape())
    if as_json:
        echo_json(doc)
        return
    for name, value in doc.items():
        click.echo(f"{name:<24} {plain(value if isinstance(value, str) else json.dumps(value))}")


@dlq.command()
@processing_option
@click.argument("job_id")
@click.argument("person")
def assign(config_path: Path | None, job_id: str, person: str) -> None:
    """Say who looks into it; it is `investigating` from here on."""
    with processing_session(config_path) as rt:
        _echo(desk.assign(rt, job_id, person))


@dlq.command()
@processing_option
@click.argument("job_id")
@click.argument("text")
def note(config_path: Path | None, job_id: str, text: str) -> None:
    """Write something down."""
    with processing_session(config_path) as rt:
        _echo(desk.note(rt, job_id, text))


@dlq.command()
@processing_option
@click.argument("job_id")
@click.option("--note", "text", default="resolved by hand", show_default=True)
def resolve(config_path: Path | None, job_id: str, text: str) -> None:
    """Close it: settled by other means. Its video stays failed."""
    with processing_session(config_path) as rt:
        _echo(desk.resolve(rt, job_id, text))


@dlq.command()
@processing_option
@click.argument("job_id")
@click.option("--note", "text", default="given up by hand", show_default=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
def abandon(config_path: Path | None, job_id: str, text: str, yes: bool) -> None:
    """Give it up for good: its video is skipped."""
    with processing_session(config_path) as rt:
        confirm(f"Give up {job_id}? Its video will be skipped.", yes=yes)
        _echo(desk.abandon(rt, job_id, text))


@dlq.command()
@processing_option
@click.argument("job_ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every open letter that can be tried again.")
@click.option("--force", is_flag=True, help="Also what will probably fail again, or is too early.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
def retry(config_path: Path | None, job_ids: tuple[str, ...], everything: bool, force: bool, dry_run: bool) -> None:
    """Try jobs again. What was paid and answered is not asked for again. Exit code 5 when some cannot be tried.

    --all leaves out jobs of which nobody knows whether they were paid: look at the provider's usage, then name them.
    """
    if bool(job_ids) == everything:
        raise click.UsageError("which ones? Give job ids, or --all.")
    with processing_session(config_path) as rt:
        found = job_ids or [letter.doc.job_id for letter in dead_jobs.search(status=None, limit=100_000)]
        unsure = [job_id for job_id in found if everything and not force and _may_be_paid(job_id)]
        failed = len(unsure)
        for job_id in unsure:
            click.echo(
                f"csi: {job_id}: may have been paid already; look at the provider's usage, then name it", err=True
            )
        for job_id in [job_id for job_id in found if job_id not in unsure]:
            failed += not (_plan(job_id) if dry_run else _retry(rt, job_id, force=force))
    sys.exit(SOME_FAILED if failed else 0)


def _may_be_paid(job_id: str) -> bool:
    return desk.get(job_id).doc.failure_type == "manual_intervention"


def _plan(job_id: str) -> bool:
    doc = desk.get(job_id).doc
    click.echo(f"{job_id}: would be tried again" if doc.can_retry else f"{job_id}: only with --force")
    return True


def _retry(rt: Processing, job_id: str, *, force: bool) -> bool:
    try:
        desk.retry(rt, job_id, force=force)
    except CsiError as error:
        click.echo(f"csi: {plain(logs.redact(str(error)))}", err=True)
        return False
    click.echo(f"{job_id}: is tried again")
    return True


def _echo(doc: DeadLetterJobDocument) -> None:
    who = f", {plain(logs.redact(doc.assigned_to))}" if doc.assigned_to else ""
    click.echo(f"{doc.job_id}: {doc.dlq_status}{who}")
