"""`csi prune`: delete rows that are older than their retention, without waiting for the hourly run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models
from csi.cli.command import config_option, dry_run_option, installed, json_option, yes_option
from csi.cli.output import confirm, echo_json, echo_table, plural, progress
from csi.worker import retention

if TYPE_CHECKING:
    from csi.runtime import Runtime
    from csi.worker.retention import Pruned


@click.command()
@config_option
@json_option
@dry_run_option
@yes_option
def prune(config_path: Path | None, as_json: bool, dry_run: bool, yes: bool) -> None:
    """Delete events, attempts, closed dead letters and dedupe keys that are older than `retention` allows.

    The worker does this every hour. Pending and in-flight events and open dead letters are kept.
    """
    with installed(config_path) as rt:
        plan = retention.survey(rt)
        if dry_run:
            _report(rt, plan, "WOULD GO", as_json=as_json)
            return
        if plan.total:
            confirm(f"Delete {plural(plan.total, 'old row')}?", yes=yes)
        with progress(plan.total, "removing") as notice:
            done = retention.prune(rt, notice=notice)
        _report(rt, done, "REMOVED", as_json=as_json)


def _report(rt: Runtime, report: Pruned, word: str, *, as_json: bool) -> None:
    kept = rt.settings.retention
    days = {"dead_letter": kept.dlq_days, "dedupe_keys": kept.dedupe_days}
    if as_json:
        echo_json(api_models.PruneReport.of(report, dry_run=word != "REMOVED"))
        return
    rows = [[name, f"{days.get(name, kept.events_days)} d", f"{count:,}"] for name, count in report.removed.items()]
    echo_table(("TABLE", "KEPT", word), rows)
    if report.open_letters:
        count = plural(report.open_letters, "open dead letter")
        click.echo(
            f"{count} older than {kept.dlq_days} days are kept until you replay, discard or prune them", err=True
        )
