"""`csi receiver`: run the receiver of signed batches, and check it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from csi import clock, local_login, logs, net, notifications, server
from csi.cli.command import json_option
from csi.cli.output import echo_json, plain
from csi.receiver import app, doctor, settings

if TYPE_CHECKING:
    from starlette.routing import Route

    from csi.processing.alerting import AlertLoop
    from csi.receiver.settings import ReceiverSettings

_LEVELS = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)
_FORMATS = click.Choice(["auto", "json", "text"])
_FILE = click.Path(dir_okay=False, path_type=Path)
_db_option = click.option(
    "--db", type=_FILE, help="Database file. [default: UA_SIGNALS_DB_PATH, else ./csi-receiver.db]"
)


@click.group(invoke_without_command=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8090,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@_db_option
@click.option("--ledger", type=_FILE, help="Append one JSON line per event received to this file.")
@click.option(
    "--processing",
    type=click.Path(dir_okay=False),
    is_flag=False,
    flag_value="",
    help="Serve processing's dashboard at /ui, health, metrics and webhook, and report its problems; with a value, of "
    "this processing.yaml.",
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
    processing: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the receiver: verify, store and acknowledge signed batches of events.

    The secret comes from UA_SIGNALS_INGEST_SHARED_SECRET, or from the file that
    UA_SIGNALS_INGEST_SHARED_SECRET_FILE names.
    """
    if ctx.invoked_subcommand is not None:
        return
    chosen = settings.from_env(os.environ, db_path=db, ledger_path=ledger)
    routes, secrets, alerts = _serve_processing(chosen, processing)
    logs.setup(level=log_level.upper(), format=log_format, secrets=[*chosen.hidden, *secrets])
    with server.listen(server.resolve(host, port, setting="--host"), setting="--port") as listener:
        receiver_app = app.create_app(chosen, extra_routes=routes)
        address, bound_port = listener.getsockname()[:2]
        url_host = f"[{address}]" if ":" in address else address
        endpoint = f"http://{url_host}:{bound_port}{app.INGEST_PATH}"
        click.echo(f"receiver listening on {endpoint}")
        click.echo(f"to point CSI at it: CSI_UA_ENDPOINT={endpoint}")
        click.echo("  CSI_UA_SHARED_SECRET=the value of UA_SIGNALS_INGEST_SHARED_SECRET; then: csi delivery test")
        server.leave_on_signals()
        if alerts is not None:
            alerts.start()
        sys.exit(server.run(receiver_app, listener, server.ServerLimits(head_bytes=256 * 1024, grace_seconds=20)))


def _serve_processing(
    chosen: ReceiverSettings, config_path: str | None
) -> tuple[list[Route], list[str], AlertLoop | None]:
    """Processing's routes, the secrets to redact, and the thread that reports its problems; nothing without
    --processing."""
    if config_path is None:
        return [], [], None
    # Imported here: a receiver without the dashboard does not load processing.
    from csi.processing import config
    from csi.processing.alerting import AlertLoop
    from csi.processing.pages.app import routes
    from csi.processing.runtime import Processing
    from csi.processing.store import db

    processing = config.load(Path(config_path) if config_path else None)
    secrets = config.read_secrets(processing)
    if secrets.notify_urls:
        notifications.check(secrets.notify_urls)
    db.open_database(processing.database_url)
    db.migrate()
    rt = Processing(processing, net.Net(), secrets)
    login = local_login.LocalLogin(chosen.db_path.absolute().parent)
    return routes(rt, chosen.dashboard_password, login), secrets.all, AlertLoop(rt, is_worker=False)


@receiver.command("login-link")
@_db_option
@click.option("--url", default="http://127.0.0.1:8090", show_default=True, help="Where the receiver listens.")
def login_link(db: Path | None, url: str) -> None:
    """Print a link that opens processing's dashboard once, on this machine, without a password.

    It works for 10 minutes, for the receiver whose database is in the same directory. Run it as the receiver's user.
    """
    chosen = settings.from_env(os.environ, db_path=db)
    key = local_login.make_key(chosen.db_path.absolute().parent)
    click.echo(f"{url.rstrip('/')}/ui/login?key={key}")


@receiver.command("doctor")
@_db_option
@click.option("--url", help="Also send test requests to a running receiver: its ingest URL.")
@json_option
def run_doctor(db: Path | None, url: str | None, as_json: bool) -> None:
    """Check settings, database, disk and, with --url, a running receiver. Exit code 1 when a check fails."""
    chosen = settings.from_env(os.environ, db_path=db)
    logs.setup(level="ERROR", secrets=chosen.hidden)
    with net.Net() as client:
        checks = doctor.examine(chosen, client, url, clock.now())
    if as_json:
        echo_json([asdict(check) for check in checks])
    else:
        for check in checks:
            click.echo(f"{check.state:<5} {check.what}: {plain(check.words)}")
    sys.exit(1 if any(check.state == "ill" for check in checks) else 0)
