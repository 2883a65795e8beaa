"""The sidecar as a process: its own socket, a plain uvicorn, an orderly end."""

import asyncio
import errno
import ipaddress
import os
import resource
import signal
import socket
import sys
import threading
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from csi import systemd
from csi.config.settings import Settings
from csi.errors import ConfigError, PortInUse
from csi.logs import log

BACKLOG = 1024
HEAD_BYTES = 32 * 1024
HEAD_SECONDS = 15.0
GRACE_SECONDS = 5
OPEN_FILES = 8192
TICKS = 50
"""Tenths of a second, which uvicorn's main loop counts, between two signs of life."""

TURN_TICKS = 5
"""Between two turns of that loop, in the same measure."""


class PunctualProtocol(H11Protocol):
    """Closes a connection on which no request gets complete: uvicorn would wait for ever (FAULTS 85)."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        """It runs from the first byte of a head, whatever trickles in later, and ends when the request is whole."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._drop_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class NotifyingServer(uvicorn.Server):
    """Tells the service manager that the loop turns: from the loop itself, so that a stuck one is silent."""

    async def main_loop(self) -> None:
        """Twice a second, where uvicorn turns ten times: at rest a sidecar does nothing else."""
        counter = 0
        while not await self.on_tick(counter):
            await asyncio.sleep(TURN_TICKS / 10)
            counter += TURN_TICKS

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            systemd.notify(systemd.READY, systemd.ALIVE)
        return await super().on_tick(counter)


def listen(settings: Settings) -> socket.socket:
    """A listening socket of our own, so that a taken port is one clear sentence."""
    host, port = settings.web.host, settings.web.port
    family, address = _resolve(host, port)
    if not _is_loopback(address) and settings.secrets.admin_token is None:
        raise ConfigError(f"web.host {host} can be reached from other machines: set CSI_ADMIN_TOKEN, or use 127.0.0.1")
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((address, port))
        door.listen(BACKLOG)
    except OSError as error:
        door.close()
        raise _explain(error, host, port) from error
    return door


def serve(app: Starlette, door: socket.socket) -> int:
    """Serve until TERM or INT; requests being handled get five seconds. Returns the exit code."""
    _allow_files()
    host, port = door.getsockname()[:2]
    log.info("sidecar listens", host=host, port=port)
    if not _is_loopback(host):
        log.warning("listening beyond this machine without TLS: put a proxy with TLS in front")
    try:
        NotifyingServer(_config(app)).run(sockets=[door])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def leave_on_signals() -> None:
    """TERM is an orderly end. uvicorn takes the signals over while it serves and raises them again after."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)


def end(code: int) -> None:
    """Leave now, even where a thread still waits for a source: its lease was given back, it loses nothing."""
    log.info("sidecar ends")
    if any(thread.is_alive() and not thread.daemon for thread in _other_threads()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _config(app: Starlette) -> uvicorn.Config:
    # No limit_concurrency: it counts idle connections and would refuse /healthz, too. The edge has one.
    return uvicorn.Config(
        app,
        http=PunctualProtocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="error",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"web.host {host[:100]!r} is not an address of this machine") from error
    # IPv4 first, so that "localhost" is where everybody looks for it.
    chosen = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return chosen[0], str(chosen[4][0])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _explain(error: OSError, host: str, port: int) -> ConfigError | PortInUse:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"{host}:{port} is in use by another program: stop it, or choose another port with web.port or PORT"
        )
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; see web.host and web.port")


def _allow_files() -> None:
    """A thousand connections must not use up the handles that the database needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _other_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread is not threading.current_thread()]


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0 if number == signal.SIGTERM else 128 + number)
