"""`csi receiver`: run the receiving side of the wire."""

import errno
import ipaddress
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import click
import uvicorn
from starlette.applications import Starlette

from csi import logs
from csi.errors import ConfigError, PortInUse
from csi.logs import log
from csi.receiver.app import INGEST_PATH, create_app
from csi.receiver.settings import from_env

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
@click.option("--log-level", type=_LEVELS, default="INFO", show_default=True, envvar="CSI_LOG_LEVEL")
@click.option("--log-format", type=_FORMATS, default="auto", show_default=True)
@click.pass_context
def receiver(
    ctx: click.Context,
    host: str,
    port: int,
    db: Path | None,
    ledger: Path | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the receiving side of the wire: verify, store and acknowledge signed batches of events.

    The secret comes from UA_SIGNALS_INGEST_SHARED_SECRET, or from the file that
    UA_SIGNALS_INGEST_SHARED_SECRET_FILE names.
    """
    if ctx.invoked_subcommand is not None:
        return
    settings = from_env(os.environ, db_path=db, ledger_path=ledger)
    logs.setup(level=log_level.upper(), format=log_format, secrets=settings.hidden)
    with _listen(host, port) as door:
        app = create_app(settings)
        click.echo(f"receiver listening on {_url(door)}")
        _warn_if_open(door)
        _serve(app, door)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket of our own, so that a taken port is one clear sentence and port 0 can be told."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        door = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: not an address of this machine") from error
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen(2048)
    except OSError as error:
        door.close()
        raise _explain(error, host, port) from error
    return door


def _explain(error: OSError, host: str, port: int) -> ConfigError | PortInUse:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(f"{host}:{port} is in use by another program: stop it, or choose another --port")
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}")


def _url(door: socket.socket) -> str:
    host, port = door.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{INGEST_PATH}"


def _warn_if_open(door: socket.socket) -> None:
    if not ipaddress.ip_address(door.getsockname()[0].partition("%")[0]).is_loopback:
        log.warning("listening beyond this machine without TLS: put a proxy with TLS in front")


def _serve(app: Starlette, door: socket.socket) -> None:
    """Serve until TERM or INT; requests being handled are finished first."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # uvicorn raises the signal again when it is done
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=20,
        h11_max_incomplete_event_size=256 * 1024,
    )
    uvicorn.Server(config).run(sockets=[door])


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0 if number == signal.SIGTERM else 128 + number)
