"""Run an ASGI app on one socket with a head timeout and a connection cap."""

import asyncio
import errno
import ipaddress
import resource
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from csi import systemd
from csi.errors import ConfigError, NoThreads, PortInUse
from csi.logs import log
from csi.net import is_loopback

BACKLOG = 2048
"""Connections that the kernel completes and keeps until the server accepts them."""

ACCEPTS_PER_TURN = 64
"""Connections accepted in one turn of the event loop. Two turns pass before the first bytes of a connection are read;
a batch far below the cap ensures that newer connections do not push it out before that."""

PROXY_HEADERS = (
    *("forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"),
    *("x-forwarded-server", "x-client-ip", "cf-connecting-ip", "true-client-ip"),
)
SPARE_PIECES, BYTES_PER_PIECE = 1_000, 16
"""A body may come in this many pieces of any size, and in one more for each so many bytes."""

OPEN_FILES = 8192
LOG_SECONDS = 10.0
HEARTBEAT_TICKS = 50
"""Tenths of a second, which uvicorn's main loop counts, between two heartbeats to the service manager."""

TURN_TICKS = 5
"""Tenths of a second between two turns of that loop."""


@dataclass(frozen=True)
class ServerLimits:
    """What one server grants its clients (decision 0039)."""

    head_seconds: float = 15.0
    connections: int = 512
    head_bytes: int = 32 * 1024
    grace_seconds: int = 5
    """For requests that are being handled when the server stops."""


@dataclass(frozen=True)
class ListenAddress:
    """A configured host and port, and the numeric address behind them."""

    host: str
    port: int
    family: socket.AddressFamily
    numeric: str

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.numeric)


def resolve(host: str, port: int, *, setting: str) -> ListenAddress:
    """`setting` is the name under which the operator set the host."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{setting} {host[:100]!r} is not an address of this machine") from error
    # IPv4 first: clients try 127.0.0.1 for "localhost".
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return ListenAddress(host, port, family, str(address[0]))


def listen(address: ListenAddress, *, setting: str) -> socket.socket:
    """A listening socket, bound before uvicorn starts: a taken port is a clear error, and port 0 becomes known."""
    door = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((address.numeric, address.port))
        door.listen(BACKLOG)
    except OSError as error:
        door.close()
        place = f"{address.host}:{address.port}"
        if error.errno == errno.EADDRINUSE:
            message = f"{place} is in use by another program: stop it, or choose another port with {setting}"
            raise PortInUse(message) from error
        raise ConfigError(
            f"cannot listen on {place}: {error.strerror}; check the host, and the port of {setting}"
        ) from error
    return door


def is_local_client(request: Request) -> bool:
    """Whether a client on this machine sent the request itself: a proxy on this machine forwards for others. A proxy
    shows by its headers, or by HTTP/1.0, which nginx speaks unless configured otherwise. One that hides entirely is
    not noticed: what is confidential needs a password, too."""
    client = request.client
    if client is None or request.scope.get("http_version") == "1.0":
        return False
    return not any(name in request.headers for name in PROXY_HEADERS) and is_loopback(client.host)


def leave_on_signals() -> None:
    """TERM exits with 0, INT with 130. uvicorn handles the signals while it serves and raises them again afterwards."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)


def run(
    app: Starlette,
    door: socket.socket,
    limits: ServerLimits,
    second: socket.socket | None = None,
    trusted_proxies: Sequence[str] = (),
) -> int:
    """Serve until TERM or INT; requests being handled are finished within the grace period. Returns the exit code."""
    doors = [door] if second is None else [door, second]
    if not all(_is_loopback(one.getsockname()[0]) for one in doors):
        log.warning("listening beyond this machine without TLS: put a proxy with TLS in front")
    try:
        threading.Thread(target=int, daemon=True).start()  # uvicorn would end with a traceback where none can start
    except RuntimeError as error:
        raise NoThreads from error
    try:
        LimitedServer(app, limits, trusted_proxies).run(sockets=doors)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


class RareLine:
    """A warning that is logged at most once per 10 s, with the number of occurrences since the last line."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._count = 0
        self._logged_at = float("-inf")

    def note(self, now: float, **fields: object) -> None:
        self._count += 1
        if now - self._logged_at >= LOG_SECONDS:
            log.warning(self._message, count=self._count, **fields)
            self._count, self._logged_at = 0, now


class OpenConnections:
    """The open connections of one server, ordered by their last change between idle and busy."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._open: dict[BoundedConnection, None] = {}
        self._line = RareLine("connection limit reached; the connection idle for longest was closed")

    def add(self, new: "BoundedConnection") -> None:
        self._open[new] = None
        if len(self._open) > self.cap:
            self._line.note(new.loop.time(), limit=self.cap)
            # The new one is closed only where all others are being answered.
            self._close(next(chain(self._closable(new), [new])))

    def move_to_end(self, connection: "BoundedConnection") -> None:
        if connection in self._open:
            self._open[connection] = self._open.pop(connection)

    def remove(self, connection: "BoundedConnection") -> None:
        self._open.pop(connection, None)

    def close_oldest(self) -> None:
        for connection in self._closable(None):
            self._close(connection)
            return

    def _closable(self, new: "BoundedConnection | None") -> "chain[BoundedConnection]":
        """Connections that wait for their client: the idle ones first, the oldest of each kind first."""
        others = [connection for connection in self._open if connection is not new]
        return chain(
            (connection for connection in others if connection.is_idle),
            (connection for connection in others if connection.is_stalled),
        )

    def _close(self, connection: "BoundedConnection") -> None:
        self.remove(connection)
        connection.transport.abort()


class RequestParser(h11.Connection):
    """h11 that refuses a body in chunks of a few bytes. Each chunk takes as long as a small request, and asyncio reads
    40,000 of them at once: a hundred connections would keep every other client waiting for 20 s."""

    def __init__(self, head_bytes: int) -> None:
        super().__init__(h11.SERVER, head_bytes)
        self._pieces = self._bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._pieces, self._bytes = self._pieces + 1, self._bytes + len(event.data)
            if self._pieces > SPARE_PIECES + self._bytes // BYTES_PER_PIECE:
                raise h11.RemoteProtocolError("the body comes in pieces of a few bytes")
        return event


class BoundedConnection(H11Protocol):
    """One connection, closed when its next request head is not complete in time. uvicorn alone waits without limit."""

    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, open_connections: OpenConnections, limits: ServerLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = RequestParser(limits.head_bytes)
        self._open_connections = open_connections
        self._head_seconds = limits.head_seconds

    @property
    def is_idle(self) -> bool:
        """No request is being handled: the head is missing or incomplete, or the last response is complete."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_stalled(self) -> bool:
        """The client has yet to send the rest of a body, or to read a response."""
        return bool(self.cycle.more_body or self.transport.get_write_buffer_size())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()
        self._open_connections.add(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        """For bytes that are not HTTP. uvicorn raises an error, logged with a traceback, where they come behind
        the head of a request: its response has begun, or the application is about to send one."""
        if not self.is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        self._open_connections.move_to_end(self)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_deadline()
        self._open_connections.remove(self)
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        """The deadline runs from the first byte of a head; later bytes do not extend it. A complete head ends it."""
        if not self.is_idle:
            self._drop_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._head_seconds, self.transport.abort)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._open_connections.move_to_end(self)


class OneLength:
    """Refuses a request with Content-Length and Transfer-Encoding, and ends its connection: a proxy that reads the
    other one would take the rest of the body for the next request of another client (RFC 9112, 6.1)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            text = "Content-Length and Transfer-Encoding cannot be sent together"
            await PlainTextResponse(text, 400, {"Connection": "close"})(scope, receive, send)
            return
        await self._app(scope, receive, send)


class LimitedServer(uvicorn.Server):
    """uvicorn within limits. It sends heartbeats to the service manager from its loop: a blocked loop sends none."""

    def __init__(self, app: Starlette, limits: ServerLimits, trusted_proxies: Sequence[str] = ()) -> None:
        files = raise_file_limit()
        # Half of the file handles stay free for the database and for connections accepted but not yet counted.
        self.open_connections = OpenConnections(min(limits.connections, files // 2))
        self._accept_errors = RareLine("connections cannot be accepted")

        def protocol(*args: Any, **kwargs: Any) -> BoundedConnection:
            return BoundedConnection(*args, **kwargs, open_connections=self.open_connections, limits=limits)

        # No limit_concurrency: uvicorn counts idle connections and would answer 503 to valid requests during an attack.
        config = uvicorn.Config(
            # A client that guesses tokens must not lock out all others behind the same proxy.
            OneLength(ProxyHeadersMiddleware(app, [*trusted_proxies]) if trusted_proxies else app),  # type: ignore[arg-type]
            http=protocol,  # type: ignore[arg-type]  # uvicorn only calls it
            ws="none",
            loop="asyncio",
            lifespan="on",
            access_log=False,
            log_config=None,
            log_level="error",
            proxy_headers=False,
            server_header=False,
            backlog=max(1, min(ACCEPTS_PER_TURN, self.open_connections.cap // 8)),
            timeout_keep_alive=5,
            timeout_graceful_shutdown=limits.grace_seconds,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self.on_loop_error)
        await super().startup(sockets)
        for door in sockets or []:
            door.listen(BACKLOG)  # asyncio has set it to its number of accepts per turn

    async def main_loop(self) -> None:
        """Two turns per second, where uvicorn makes ten: an idle server does nothing else."""
        counter = 0
        while not await self.on_tick(counter):
            await asyncio.sleep(TURN_TICKS / 10)
            counter += TURN_TICKS

    async def on_tick(self, counter: int) -> bool:
        if counter % HEARTBEAT_TICKS == 0:
            systemd.notify(systemd.READY, systemd.ALIVE)
        return await super().on_tick(counter)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio reports each failed accept, many times per second without a free file handle.

        It names the failed call only in the message. Each failure frees one file handle where a connection is idle.
        """
        if "accept" not in context["message"]:
            loop.default_exception_handler(context)
            return
        self._accept_errors.note(loop.time(), error=context.get("exception"))
        self.open_connections.close_oldest()


def raise_file_limit() -> int:
    """Raise the soft limit of open files up to the hard limit, 8192 at most. Returns the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def _is_loopback(numeric: str) -> bool:
    return ipaddress.ip_address(numeric.partition("%")[0]).is_loopback


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0 if number == signal.SIGTERM else 128 + number)
