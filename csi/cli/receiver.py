"""`csi receiver`: run the receiving side of the wire."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import clock, logs, server
from csi import net as wire
from csi.cli.options import json_option
from csi.cli.output import echo_json
from csi.cli.terminal import plain
from csi.receiver import app as ingest
from csi.receiver import doctor as examination
from csi.receiver import settings as wishes

if TYPE_CHECKING:
    import socket

    from starlette.routing import Route

    from csi.receiver.settings import ReceiverSettings

_LEVELS = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)
_FORMATS = click.Choice(["auto", "json", "text"])


@click.group(invoke_without_command=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8090,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--db",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Database file. [default: UA_SIGNALS_DB_PATH, else ./csi-receiver.db]",
)
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append one JSON line per event received to this file.",
)
@click.option(
    "--processing",
    type=click.Path(dir_okay=False, path_type=Path),
    is_flag=False,
    flag_value=Path(""),
    help="Serve processing's dashboard at /ui and its webhook; with a value, of this processing.yaml.",
)
@click.option("--log-level", type=_LEVELS, default="INFO", show_default=True, envvar="CSI_LOG_LEVEL")
@click.option("--log-format", type=_FORMATS, default="auto", show_default=True)
@click.pass_context
def receiver(
    ctx: click.Context,
    host: str,
    port: int,
    db: Path | None,
    ledger: Path | None,
    processing: Path | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the receiving side of the wire: verify, store and acknowledge signed batches of events.

    The secret comes from UA_SIGNALS_INGEST_SHARED_SECRET, or from the file that
    UA_SIGNALS_INGEST_SHARED_SECRET_FILE names.
    """
    if ctx.invoked_subcommand is not None:
        return
    settings = wishes.from_env(os.environ, db_path=db, ledger_path=ledger)
    beside, hidden = _dashboard(settings, processing)
    logs.setup(level=log_level.upper(), format=log_format, secrets=[*settings.hidden, *hidden])
    with server.listen(server.resolve(host, port, setting="--host"), setting="--port") as door:
        app = ingest.create_app(settings, extra_routes=beside)
        click.echo(f"receiver listening on {_url(door)}")
        server.leave_on_signals()
        sys.exit(server.run(app, door, server.ServerLimits(head_bytes=256 * 1024, grace_seconds=20)))


def _dashboard(settings: ReceiverSettings, wanted: Path | None) -> tuple[list[Route], list[str]]:
    """The pages of processing, where they are asked for, and the secrets that must not be logged."""
    if wanted is None:
        return [], []
    from csi.processing import config
    from csi.processing.pages.app import DashboardContext, routes
    from csi.processing.runtime import Processing
    from csi.processing.store import db

    chosen = config.load(wanted if wanted != Path("") else None)
    secrets = config.read_secrets(chosen)
    db.open_database(chosen.database_url)
    db.migrate()
    pages = DashboardContext(Processing(chosen, wire.Net(), secrets), settings.dashboard_password, secrets.webhook)
    return routes(pages), secrets.all


def _url(door: socket.socket) -> str:
    host, port = door.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{ingest.INGEST_PATH}"


@receiver.command()
@click.option(
    "--db",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Database file. [default: UA_SIGNALS_DB_PATH, else ./csi-receiver.db]",
)
@click.option("--url", help="Also ask a running receiver: its ingest URL.")
@json_option
def doctor(db: Path | None, url: str | None, as_json: bool) -> None:
    """Check settings, database, disk and, with --url, a running receiver with each secret. Exit code 1 when ill."""
    settings = wishes.from_env(os.environ, db_path=db)
    logs.setup(level="ERROR", secrets=settings.hidden)
    with wire.Net() as net:
        found = examination.examine(settings, net, url, clock.now())
    if as_json:
        echo_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            click.echo(f"{finding.state:<5} {finding.what}: {plain(finding.words)}")
    sys.exit(1 if any(finding.state == "ill" for finding in found) else 0)
