"""Run the sidecar as a process: its socket, its server and its exit."""

import os
import socket
import sys
import threading

from starlette.applications import Starlette

from csi import server
from csi.config.settings import Settings
from csi.errors import ConfigError
from csi.logs import log


def listen(settings: Settings) -> socket.socket:
    """ConfigError for an address beyond loopback without an admin token."""
    address = server.resolve(settings.web.host or "0.0.0.0", settings.web.port, setting="web.host")  # noqa: S104
    if not address.is_loopback and settings.secrets.admin_token is None:
        raise ConfigError(
            f"web.host {address.host} can be reached from other machines: set CSI_ADMIN_TOKEN, or use 127.0.0.1"
        )
    return server.listen(address, setting="web.port or PORT")


def serve(app: Starlette, listener: socket.socket) -> int:
    """Serve until TERM or INT. Returns the exit code."""
    host, port = listener.getsockname()[:2]
    log.info("sidecar listens", host=host, port=port)
    return server.run(app, listener, server.ServerLimits())


def end(code: int) -> None:
    """Exits also while a thread waits for a source: its lease expires, so the watch is polled again."""
    log.info("sidecar ends")
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    if any(thread.is_alive() and not thread.daemon for thread in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
