"""`csi audit`: read processing's audit log."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import click

from csi import logs
from csi.cli.command import DurationType, json_option
from csi.cli.processing import echo_documents, processing_option, processing_session

_OUTCOMES = click.Choice(["success", "failure", "partial", "skipped"])


@click.group()
def audit() -> None:
    """Read processing's audit log. It is append-only: entries are deleted only after their retention."""


@audit.command("list")
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
    """List entries, the newest first. `sensitive`: the action touched personal or confidential text."""
    from csi.processing.store.audit import search

    with processing_session(config_path) as rt:
        after = rt.now() - since if since is not None else 0.0
        entries = search(limit=limit, since=after, **filters)
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
