"""`csi audit`: what operators and agents changed, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import api_models, logs
from csi.cli import processing_records
from csi.cli.command import config_and_json_options, installed
from csi.cli.output import echo_json, echo_table, plain, stamp
from csi.status import audit_sentences

if TYPE_CHECKING:
    pass

VIAS = ("dashboard", "api", "cli", "mcp")


@click.group("audit", invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many.")
@click.option("--via", type=click.Choice(VIAS), help="Only what was done there.")
@config_and_json_options
@click.pass_context
def audit_group(ctx: click.Context, limit: int, via: str | None, config_path: Path | None, as_json: bool) -> None:
    """List what operators and agents changed, the newest first: through commands, the dashboard, the API and MCP."""
    if ctx.invoked_subcommand is not None:
        return
    with installed(config_path):
        rows = audit_sentences.page(limit, via=via)
    if as_json:
        echo_json(api_models.AuditLog.of_sentences(rows, None))
        return
    cells = [
        [stamp(row.record.at), plain(row.actor, 40), plain(row.text), row.outcome, plain(logs.redact(row.result or ""))]
        for row in rows
    ]
    echo_table(("TIME", "BY", "ACTION", "OUTCOME", "RESULT"), cells, widest=60)


_of_processing = processing_records.list_entries
audit_group.add_command(
    click.Command(
        "list",
        params=_of_processing.params,
        callback=_of_processing.callback,
        help="Read processing's audit log, as `csi processing audit` does: the name that it had in release 1.0.",
        deprecated="use csi processing audit",
    )
)
