"""`csi mcp`: the MCP server on standard input and output, for agents on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from csi.cli.command import config_option, installed, user_name
from csi.errors import CsiError
from csi.web import shared_state
from csi.web.mcp import audit_records, calls, endpoint, event_requests

READ_ONLY = "this server is read-only; start it with csi mcp --allow-write for changes"


@click.command()
@config_option
@click.option("--allow-write", is_flag=True, help="Offer changes too; each needs a preview and its confirmation.")
def mcp(config_path: Path | None, allow_write: bool) -> None:
    """Serve the MCP server on standard input and output, for an agent that starts this command.

    Read-only by default: problems, events, watches, quota, dead letters, catalogue. It ends when the agent closes
    standard input. Every call is in the audit log.
    """
    import anyio

    try:
        sdk = endpoint.load_sdk()
    except CsiError as error:
        raise CsiError(endpoint.NOT_INSTALLED) from error
    with installed(config_path) as rt:
        caller = audit_records.Caller("admin" if allow_write else "reader", user_name(), allow_write, READ_ONLY)
        sidecar = shared_state.Sidecar(lambda: rt)
        events = event_requests.EventRequests(sidecar) if rt.settings.features.mcp_events else None
        anyio.run(sdk.serve_stdio, calls.ToolCalls(sidecar), events, caller)
