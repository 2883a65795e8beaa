"""`csi processing`: run the worker; show its state, videos and costs, and act on them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from csi import clock, logs
from csi import mutes as mute_rules
from csi.cli import processing_dead_letters, processing_input, processing_records
from csi.cli.command import DurationType, json_option, user_name
from csi.cli.output import ago, echo_json, echo_table, plain, plural
from csi.cli.processing_session import checked_day, echo_documents, processing_option, processing_session, redacted
from csi.errors import SOME_FAILED, CsiError, StoreError
from csi.processing import config, problems, receiver_database, runtime, status
from csi.processing.pipeline import budget, digests, notify, operator_log, provider_access, retry_video
from csi.processing.states import STATUSES
from csi.processing.store import (
    artifacts,
    db,
    dead_jobs,
    export,
    jobs,
    mutes,
    notices,
    notification_log,
    paid_calls,
    received_events,
    videos,
)

if TYPE_CHECKING:
    from csi.processing.runtime import Processing

CONSUMER = ("-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1", "-g", "TERM", "-t", "25")
COLLECTIONS = ("videos", "jobs/transcription", "jobs/summarization", "audit_logs", "jobs_deadletter", "run_events")
WAITS = {
    "transcript": "a transcript that does not exist yet",
    "stream_end": "the end of a stream",
    "person": "a person (dead letters that nothing retries: csi processing dlq list)",
}
"""What a job may wait for besides the budget and a provider that is paused."""


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
    """Run the worker in the foreground."""
    if config_path:
        os.environ[config.PATH] = str(config_path)
    config.read_secrets(config.load(config_path))
    line = [sys.executable, "-m", "huey.bin.huey_consumer", "tasks.processing.huey", "-w", str(workers), *CONSUMER]
    os.execv(sys.executable, line)  # noqa: S606 our own interpreter and module


@processing.command()
@processing_option
def check(config_path: Path | None) -> None:
    """Check the configuration and the secrets it needs, and show what processing will do."""
    settings = config.load(config_path)
    runtime.create(settings, config.read_secrets(settings)).net.close()
    for name, route in sorted(settings.routes.items()):
        click.echo(f"{plain(name)}: {route.action}" + (f" + {', '.join(route.documents)}" if route.documents else ""))
    providers = ", ".join(settings.transcription.providers)
    click.echo(f"transcripts from {providers}; summaries from {settings.summarization.provider}")
    click.echo(f"at most {settings.budget.daily_usd} USD a day")
    if config.read_secrets(settings).notify_urls:
        click.echo("problems are notified through the services of " + settings.notifications.urls_env)
    else:
        variable = settings.notifications.urls_env
        click.echo(f"warning: problems are only appended to {settings.notice_file}: set {variable} to be notified")


@processing.command("status")
@processing_option
@json_option
def show_status(config_path: Path | None, as_json: bool) -> None:
    """Show the problems, the worker, videos by status, today's spending, open jobs and dead letters."""
    with processing_session(config_path) as rt:
        facts = _facts(rt)
    if as_json:
        echo_json(facts)
        return
    for problem in facts["problems"]:
        what, cause = plain(problem["what"], 300), f": {plain(problem['cause'], 300)}" if problem["cause"] else ""
        since = f" (since {problem['since']})" if problem["since"] else ""
        click.echo(f"{problem['severity']:<14} {what}{cause}{since}; {problem['effect']}")
        click.echo(f"  what to do   {problem['remedy']}")
        click.echo(f"  more         csi docs runbook {problem['runbook']}; page {problem['page']}")
    for one in facts["mutes"]:
        why = f" ({plain(one['reason'], 200)})" if one["reason"] else ""
        click.echo(f"muted          {one['problem'] or 'all problems'} until {one['until']}{why}")
    click.echo(f"worker         {facts['worker']}")
    click.echo(f"receiver       {plain(facts['receiver'])}")
    click.echo("videos         " + (", ".join(f"{n} {name}" for name, n in facts["videos"].items()) or "none yet"))
    money = facts["budget"]
    click.echo(
        f"budget today   {money['spent_usd']} paid, {money['reserved_usd']} reserved of {money['daily_usd']} USD"
    )
    waits = ", ".join(f"{n} for {WAITS.get(name, name)}" for name, n in facts["waiting_jobs"].items())
    click.echo(f"open jobs      {facts['open_jobs']}" + (f"; waiting: {waits}" if waits else ""))
    click.echo(f"dead letters   {facts['dead_letters']}")
    click.echo(f"notices        {facts['waiting_notices']} waiting")
    for name, count in facts["unknown_pipelines"].items():
        click.echo(f"no route for   {plain(name)}: {count} signals waiting; add it to routes")


def _facts(rt: Processing) -> dict[str, Any]:
    counts, facts = videos.counts(), status.gather(rt)
    age = facts.heartbeat_age
    worker = "never ran" if age is None else f"alive {ago(age)} ago" if facts.is_alive else f"silent for {ago(age)}"
    found = problems.judge(facts)
    return {
        "status": problems.verdict(found),
        "problems": [status.describe_problem(problem) for problem in found],
        "mutes": [
            {"problem": one.problem, "until": clock.iso(one.until), "reason": one.reason}
            for one in mutes.active(rt.now())
        ],
        "worker": worker,
        "worker_alive": facts.is_alive,
        "worker_beat_at": None if facts.heartbeat is None else clock.iso(facts.heartbeat.beat_at),
        "receiver": _receiver(rt),
        "videos": {name: counts[name] for name in STATUSES if name in counts},
        "signals": received_events.counts(),
        "unknown_pipelines": received_events.unknown_pipelines(),
        "open_jobs": jobs.open_count(),
        "waiting_jobs": status.waiting_jobs(rt),
        "paused_providers": [state.name for state in facts.providers if state.paused_at is not None],
        "dead_letters": dead_jobs.open_count(),
        "waiting_notices": notices.waiting_count(),
        "budget": {
            "used_usd": str(facts.budget_used),
            "spent_usd": str(facts.budget_used - facts.budget_reserved),
            "reserved_usd": str(facts.budget_reserved),
            "daily_usd": str(facts.budget_limit),
        },
        "paused": rt.settings.paused,
    }


def _receiver(rt: Processing) -> str:
    """How many signals were read from the receiver's database, or why none can be read."""
    path = rt.settings.receiver_db
    if not path.exists():
        return f"there is no database at {path} yet; check receiver_db (or {config.RECEIVER_DB})"
    try:
        unread = receiver_database.count_after(path, received_events.cursor(), 1_000_000)
    except StoreError as error:
        return str(error)
    return f"{sum(received_events.counts().values()):,} signals read, {unread:,} unread"


@processing.command("list")
@processing_option
@json_option
@click.option("--status", "wanted", type=click.Choice(list(STATUSES)), help="Only these.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
def list_videos(config_path: Path | None, as_json: bool, wanted: str | None, limit: int) -> None:
    """List videos, the last updated first."""
    with processing_session(config_path):
        found = videos.page(limit, wanted=videos.VideoFilter(status=wanted))
    head = ("video", "status", "waits for", "updated", "title")
    rows = [(video.id, video.status, video.held or "", video.doc.updated_at, video.doc.title) for video in found]
    echo_documents([video.doc for video in found], head, rows, as_json=as_json)


@processing.command()
@processing_option
@json_option
@click.argument("video_id")
def show(config_path: Path | None, as_json: bool, video_id: str) -> None:
    """Show one video: its timeline, jobs, costs, artifacts and errors."""
    with processing_session(config_path) as rt:
        video = videos.find(video_id)
        if video is None:
            raise CsiError(f"there is no video {video_id}; see: csi processing list")
        found = jobs.of_video(video_id)
        facts: dict[str, Any] = {
            "video": redacted(video.doc.shape()),
            "steps": [{"status": name, "at": clock.iso(at)} for name, at in videos.steps(video_id)],
            "jobs": [redacted(job.doc.shape()) | {"cost_usd": str(paid_calls.spent_on(job.id))} for job in found],
            "artifacts": {one.kind: str(rt.settings.artifacts / one.path) for one in artifacts.of_video(video_id)},
        }
    if as_json:
        echo_json(facts)
        return
    click.echo(f"{plain(video.doc.title)}\n{plain(video.url)}\n{video.status} ({video.doc.processing_stage})")
    for step in facts["steps"]:
        click.echo(f"  {step['at']}  {step['status']}")
    for job in facts["jobs"]:
        words = plain(job.get("error_message", ""), 100)
        click.echo(f"  {job['job_id']}: {job['status']}, {job['cost_usd']} USD {words}".rstrip())
    for kind, path in facts["artifacts"].items():
        click.echo(f"  {kind}: {path}")


@processing.command("export")
@processing_option
@click.option("--collection", required=True, type=click.Choice(COLLECTIONS), help="Which documents.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
def export_collection(config_path: Path | None, collection: str, out: Path | None) -> None:
    """Print a collection as JSON lines in the specification's shape."""
    with processing_session(config_path):
        documents = export.collection_documents(collection)
        lines = (json.dumps(redacted(doc.shape()), ensure_ascii=False) + "\n" for doc in documents)
        if out is None:
            for line in lines:
                click.echo(line, nl=False)
            return
        try:
            with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as error:
            raise CsiError(f"{out}: the export cannot be written: {error.strerror}") from error


@processing.command("digest")
@processing_option
@click.option("--day", help="YYYY-MM-DD. [default: today]")
@click.option("--pipeline", metavar="NAME", help="Of this pipeline only.")
@click.option("--html", is_flag=True, help="HTML instead of Markdown.")
def print_digest(config_path: Path | None, day: str | None, pipeline: str | None, html: bool) -> None:
    """Print the digest of a day (UTC), from the current data."""
    with processing_session(config_path) as rt:
        span = digests.whole_day(checked_day(day) if day else rt.today(), pipeline)
        markdown, as_html = digests.make_digest(rt, span)
    click.echo(logs.redact(as_html if html else markdown))


@processing.command()
@processing_option
def release(config_path: Path | None) -> None:
    """Check videos and jobs again that a daily limit deferred to tomorrow. Use it after you raised the limit.

    The worker reads its configuration when it starts: restart it first.
    """
    with processing_session(config_path) as rt, db.writing():
        count = jobs.release_waiting(budget.BUDGET, rt.now())
        words = f"{videos.release_deferred(rt.now())} videos and {count} jobs are checked again"
        operator_log.log_action(rt, "release", words)
        click.echo(words)


@processing.command("retry")
@processing_option
@click.argument("video_ids", nargs=-1, metavar="VIDEO...")
@click.option("--status", "wanted", type=click.Choice(["failed", "skipped"]), help="Every video with this status.")
@click.option("--dry-run", is_flag=True, help="Show which videos would be retried and change nothing.")
def retry_videos(config_path: Path | None, video_ids: tuple[str, ...], wanted: str | None, dry_run: bool) -> None:
    """Process videos again that failed, were skipped or wait. Exit code 5 when some cannot be retried.

    A skipped video is discovered again, and no rule skips it this time. Paid calls that have an answer are not
    repeated.
    """
    if bool(video_ids) == bool(wanted):
        raise click.UsageError("pass video ids or --status")
    failed = False
    with processing_session(config_path) as rt:
        found = [video.id for video in videos.page(100_000, wanted=videos.VideoFilter(status=wanted))] if wanted else []
        for video_id in video_ids or found:
            try:
                words = "would be retried" if dry_run else retry_video.retry_video(rt, video_id)[0]
            except CsiError as error:
                failed = True
                click.echo(f"csi: {plain(logs.redact(str(error)))}", err=True)
            else:
                click.echo(f"{plain(video_id)}: {words}")
    sys.exit(SOME_FAILED if failed else 0)


@processing.command()
@processing_option
@click.argument("provider")
def resume(config_path: Path | None, provider: str) -> None:
    """End the pause of a provider that refused our key, or had no credit. Its jobs are due at once.

    Without this command the worker probes a paused provider when it starts, and every 5 minutes.
    """
    with processing_session(config_path) as rt:
        if provider not in provider_access.configured(rt):
            names = ", ".join(sorted(provider_access.configured(rt)))
            raise click.BadParameter(f"{plain(provider, 40)} is not a configured provider; expected one of: {names}")
        count = provider_access.resume(rt, provider)
    click.echo(f"{provider}: is not paused" if count is None else f"{provider}: resumed, {count} jobs are due")


@processing.command()
@processing_option
@click.argument("duration", type=DurationType(), metavar="DURATION")
@click.option("--problem", metavar="ID", help="Only problems of this id; `csi processing status --json` shows it.")
@click.option("--reason", default="", metavar="TEXT", help="Shown where mutes are listed.")
def mute(config_path: Path | None, duration: float, problem: str | None, reason: str) -> None:
    """Send no notifications of problems for a time: 30m, 2h, 1d.

    What still fires when the mute ends is notified then. `csi notify mute` is for the ingester.
    """
    with processing_session(config_path) as rt:
        try:
            mute_rules.check_mute(duration, problem, problems.ALERTS)
        except mute_rules.CannotMute as error:
            raise click.UsageError(str(error)) from error
        now = rt.now()
        with db.writing():
            made = mutes.add(problem, plain(reason, 200) or None, by=user_name(), now=now, until=now + duration)
            words = f"{problem or 'all problems'} until {clock.iso(made.until)} {made.reason or ''}".strip()
            operator_log.log_action(rt, "mute", words)
    click.echo(f"muted: {problem or 'all problems'} until {clock.iso(made.until)}; `csi processing unmute` ends it")


@processing.command()
@processing_option
def unmute(config_path: Path | None) -> None:
    """End every mute before its time."""
    with processing_session(config_path) as rt, db.writing():
        ended = mutes.end(rt.now())
        operator_log.log_action(rt, "unmute", plural(ended, "mute"))
    click.echo(f"{plural(ended, 'mute')} ended")


@processing.group("notifications")
def notification_group() -> None:
    """Show and resend messages to notification targets. A target that fails gets each message again for a day."""


@notification_group.command("list")
@processing_option
@json_option
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
def list_notifications(config_path: Path | None, as_json: bool, limit: int) -> None:
    """List messages by target, the newest attempt first."""
    with processing_session(config_path):
        found = notification_log.table.latest(limit)
    if as_json:
        echo_json([asdict(one) | {"state": one.state} for one in found])
        return
    head = ("id", "state", "attempts", "last attempt", "target", "title", "error")
    rows = [
        (
            str(one.id),
            one.state,
            str(one.attempts),
            clock.iso(one.last_attempt_at),
            one.target,
            one.title,
            one.error or "",
        )
        for one in found
    ]
    if rows:
        echo_table(head, rows)
    else:
        click.echo("no messages")


@notification_group.command("resend")
@processing_option
@click.argument("number", type=click.IntRange(1), metavar="ID")
def resend_notification(config_path: Path | None, number: int) -> None:
    """Send a message to its target again. `csi processing notifications list` shows the ids."""
    with processing_session(config_path) as rt:
        if not notify.resend(rt, number):
            raise CsiError(f"there is no message {number}; see: csi processing notifications list")
    click.echo(f"message {number} is sent again by the worker")


processing.add_command(processing_records.list_entries)
processing.add_command(processing_input.add)
processing.add_command(processing_input.summarise)
processing.add_command(processing_dead_letters.dlq)
