"""`csi runs`: the daily runs of processing."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import click

from csi.cli.command import json_option
from csi.cli.output import echo_json, plain
from csi.cli.processing import checked_day, echo_documents, processing_option, processing_session
from csi.errors import CsiError


@click.group()
def runs() -> None:
    """Show the daily runs: planned, running, completed. Every number is counted from rows."""


@runs.command("list")
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


@runs.command()
@processing_option
@json_option
@click.argument("run_id", required=False)
def show(config_path: Path | None, as_json: bool, run_id: str | None) -> None:
    """Show one run, counted now. Without an argument: today's run."""
    from csi.processing.pipeline.runs import describe_run
    from csi.processing.store.runs import find

    with processing_session(config_path) as rt:
        day = checked_day(run_id) if run_id else rt.today()
        if day != rt.today() and find(day) is None:
            raise CsiError(f"there was no run on {day}; see: csi runs list")
        doc = describe_run(rt, day).shape()
    if as_json:
        echo_json(doc)
        return
    for name, value in doc.items():
        if name != "configuration_snapshot":
            click.echo(f"{name:<28} {plain(value)}")
