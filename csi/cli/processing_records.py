"""`csi processing audit`, `csi runs`: processing's audit log and its daily runs."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import click

from csi import logs
from csi.cli.command import DurationType, json_option
from csi.cli.output import echo_json, plain
from csi.cli.processing_session import checked_day, echo_documents, processing_option, processing_session
from csi.errors import CsiError
from csi.processing.pipeline import runs
from csi.processing.store import audit

_OUTCOMES = click.Choice(["success", "failure", "partial", "skipped"])


@click.command("audit")
@processing_option
@json_option
@click.option("--since", type=DurationType(ago=True), help='Within this time: 1h, "1 hour ago", 2d.')
@click.option("--agent", help="Of this agent only.")
@click.option("--outcome", type=_OUTCOMES, help="With this outcome only.")
@click.option("--video", help="About this video only.")
@click.option("--correlation", help="About one event: its event_id.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1_000_000))
def list_entries(
    config_path: Path | None, as_json: bool, since: float | None, limit: int, **filters: str | None
) -> None:
    """Read processing's audit log, the newest entry first. It is append-only: retention alone deletes entries.

    `sensitive`: the action touched personal or confidential text.
    """
    with processing_session(config_path) as rt:
        after = rt.now() - since if since is not None else 0.0
        entries = audit.search(limit=limit, since=after, **filters)
    head = ("time", "agent", "action", "outcome", "ms", "USD", "sensitive", "about", "details")
    first = attrgetter("timestamp", "agent_name", "action", "outcome")
    rows = [
        (
            *first(entry),
            "" if entry.duration_ms is None else f"{entry.duration_ms:g}",
            "" if entry.api_cost_usd is None else entry.api_cost_usd,
            "yes" if entry.sensitive_data else "",
            entry.resource_id or "",
            logs.redact(entry.error_message or entry.data_summary or ""),
        )
        for entry in entries
    ]
    echo_documents(entries, head, rows, as_json=as_json, empty="no entries")


@click.group("runs")
def runs_group() -> None:
    """Show the daily runs: planned, running, completed. Every number is counted from rows."""


@runs_group.command("list")
@processing_option
@json_option
@click.option("--limit", default=30, show_default=True, type=click.IntRange(1, 10_000))
def list_runs(config_path: Path | None, as_json: bool, limit: int) -> None:
    """List runs, the newest first."""
    from csi.processing.store.runs import page

    with processing_session(config_path):
        listed = page(limit)
    head = ("run", "status", "discovered", "summarized", "skipped", "failed", "dlq", "USD", "success %")
    counts = attrgetter("run_id", "status", "discovered", "summarized", "skipped", "failed", "dlq")
    rows = [(*counts(run), f"{run.budget_used_usd:.4f}", f"{run.success_rate:g}") for run in listed]
    echo_documents(listed, head, rows, as_json=as_json, empty="no runs yet")


@runs_group.command("note")
@processing_option
@click.argument("run_id")
@click.argument("text")
def note_run(config_path: Path | None, run_id: str, text: str) -> None:
    """Set the notes of a run: `csi runs note 2026-02-22 "the provider was down"`. An empty text removes them."""
    with processing_session(config_path) as rt:
        runs.note_run(rt, checked_day(run_id), text)
    click.echo(f"{run_id}: noted" if text else f"{run_id}: the notes are removed")


@runs_group.command("show")
@processing_option
@json_option
@click.argument("run_id", required=False)
def show_run(config_path: Path | None, as_json: bool, run_id: str | None) -> None:
    """Show one run, counted now. Without an argument: today's run."""
    from csi.processing.store.runs import find

    with processing_session(config_path) as rt:
        day = checked_day(run_id) if run_id else rt.today()
        if day != rt.today() and find(day) is None:
            raise CsiError(f"there was no run on {day}; see: csi runs list")
        doc = runs.describe_run(rt, day).shape()
    if as_json:
        echo_json(doc)
        return
    for name, value in doc.items():
        if name != "configuration_snapshot":
            click.echo(f"{name:<28} {plain(value)}")
