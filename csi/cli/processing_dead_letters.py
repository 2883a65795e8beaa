"""`csi processing dlq`: show, assign, note, resolve, abandon and retry the dead letters of processing."""

from __future__ import annotations

import json
import sys
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import logs
from csi.cli.command import json_option
from csi.cli.output import confirm, echo_json, plain
from csi.cli.processing_session import echo_documents, processing_option, processing_session, redacted
from csi.errors import SOME_FAILED, CsiError
from csi.processing.pipeline import dead_job_actions
from csi.processing.store import dead_jobs

if TYPE_CHECKING:
    from csi.processing.collection_models import DeadLetterJobDocument

FAILURES = ("max_retries", "fatal_error", "quota_exceeded", "manual_intervention")
_STATES = click.Choice(["open", "pending", "investigating", "resolved", "abandoned", "all"])
_failure_option = click.option("--failure", type=click.Choice(FAILURES), help="Every open one of this type.")


@click.group()
def dlq() -> None:
    """Show, assign, note, resolve, abandon and retry jobs that failed for good."""


@dlq.command("list")
@processing_option
@json_option
@click.option("--status", "state", type=_STATES, default="open", show_default=True)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
def list_dead_letters(config_path: Path | None, as_json: bool, state: str, limit: int) -> None:
    """List dead letters, the newest first."""
    with processing_session(config_path):
        found = [job.doc for job in dead_jobs.search(status=None if state == "open" else state, limit=limit)]
    head = ("job", "status", "priority", "level", "failure", "attempts", "assigned", "died", "error")
    first = attrgetter("job_id", "dlq_status", "priority", "escalation_level", "failure_type", "total_attempts")
    rows = [
        (*first(doc), logs.redact(doc.assigned_to or ""), doc.moved_to_dlq_at, logs.redact(doc.final_error))
        for doc in found
    ]
    echo_documents(found, head, rows, as_json=as_json, empty="no dead letters")


@dlq.command("show")
@processing_option
@json_option
@click.argument("job_id")
def show_dead_letter(config_path: Path | None, as_json: bool, job_id: str) -> None:
    """Show one dead letter."""
    with processing_session(config_path):
        doc = redacted(dead_job_actions.get(job_id).doc.shape())
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
    """Assign it to a person; its status becomes `investigating`."""
    with processing_session(config_path) as rt:
        _echo(dead_job_actions.assign(rt, job_id, person))


@dlq.command()
@processing_option
@click.argument("job_id")
@click.argument("text")
def note(config_path: Path | None, job_id: str, text: str) -> None:
    """Add a note."""
    with processing_session(config_path) as rt:
        _echo(dead_job_actions.note(rt, job_id, text))


def _selected(job_ids: tuple[str, ...], failure: str | None, *, everything: bool = False) -> list[str]:
    """The named dead letters, or the open ones of a failure type that are not being retried."""
    if bool(job_ids) == bool(failure or everything):
        raise click.UsageError("pass job ids, or say which: --failure (or --all, to retry)")
    found = dead_jobs.search(status=None, limit=100_000) if not job_ids else []
    chosen = [one for one in found if one.retried_at is None and failure in (None, one.doc.failure_type)]
    return list(job_ids) or [one.doc.job_id for one in chosen]


@dlq.command()
@processing_option
@click.argument("job_ids", nargs=-1, metavar="JOB...")
@_failure_option
@click.option("--note", "text", default="resolved by hand", show_default=True)
def resolve(config_path: Path | None, job_ids: tuple[str, ...], failure: str | None, text: str) -> None:
    """Close dead letters as resolved by other means. Their videos stay failed. `reopen` undoes it."""
    with processing_session(config_path) as rt:
        for job_id in _selected(job_ids, failure):
            _echo(dead_job_actions.close(rt, job_id, "resolved", text))


@dlq.command("reopen")
@processing_option
@click.argument("job_ids", nargs=-1, required=True, metavar="JOB...")
def reopen_dead_letters(config_path: Path | None, job_ids: tuple[str, ...]) -> None:
    """Undo `resolve` or `abandon`: the dead letters are pending again, and can be retried."""
    with processing_session(config_path) as rt:
        for job_id in job_ids:
            _echo(dead_job_actions.reopen(rt, job_id))


@dlq.command()
@processing_option
@click.argument("job_ids", nargs=-1, metavar="JOB...")
@_failure_option
@click.option("--note", "text", default="given up by hand", show_default=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def abandon(config_path: Path | None, job_ids: tuple[str, ...], failure: str | None, text: str, yes: bool) -> None:
    """Give dead letters up: their videos are skipped. `reopen` undoes it."""
    with processing_session(config_path) as rt:
        for job_id in _selected(job_ids, failure):
            confirm(f"Abandon {job_id}? Its video will be skipped.", yes=yes)
            _echo(dead_job_actions.close(rt, job_id, "abandoned", text))


@dlq.command()
@processing_option
@click.argument("job_ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every open dead letter that can be retried.")
@_failure_option
@click.option("--force", is_flag=True, help="Also jobs that will probably fail again, or whose retry is not due.")
@click.option("--dry-run", is_flag=True, help="Show what would happen and change nothing.")
def retry(
    config_path: Path | None,
    job_ids: tuple[str, ...],
    everything: bool,
    failure: str | None,
    force: bool,
    dry_run: bool,
) -> None:
    """Retry jobs. Paid calls that have an answer are not repeated. Exit code 5 when some cannot be retried.

    --all leaves out jobs whose last call may have been paid: check the provider's usage, then name them, or pass
    --failure manual_intervention. A dead letter is resolved when its retry has succeeded.
    """
    failed = False
    with processing_session(config_path) as rt:
        for job_id in _selected(job_ids, failure, everything=everything):
            try:
                doc = dead_job_actions.get(job_id).doc
                if everything and not force and doc.failure_type == "manual_intervention":
                    raise CsiError(f"{job_id}: may have been paid already; check the provider's usage, then name it")
                if dry_run:
                    click.echo(f"{job_id}: would be retried" if doc.can_retry else f"{job_id}: only with --force")
                    continue
                dead_job_actions.retry(rt, job_id, force=force)
            except CsiError as error:
                failed = True
                click.echo(f"csi: {plain(logs.redact(str(error)))}", err=True)
            else:
                click.echo(f"{job_id}: is retried")
    sys.exit(SOME_FAILED if failed else 0)


def _echo(doc: DeadLetterJobDocument) -> None:
    who = f", {plain(logs.redact(doc.assigned_to))}" if doc.assigned_to else ""
    click.echo(f"{doc.job_id}: {doc.dlq_status}{who}")
