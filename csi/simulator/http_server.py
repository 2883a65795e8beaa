"""Run a simulator's Starlette app with uvicorn, in this thread or in a background thread."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from csi.errors import CsiError, PortInUse

BACKLOG = 4096  # a worker opens hundreds of connections at the same moment


class TransportProtocol(H11Protocol):
    """Passes the transport to each request, so that a fault can reset or cut the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class SignalFreeServer(uvicorn.Server):
    """Installs no signal handlers: the caller sets `should_exit`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; connections wait in its backlog until the server runs. Port 0 takes a free port."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
    except OSError as error:
        raise CsiError(f"cannot listen on {host}: {error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            message = f"{host}:{port} is taken by another program; choose another --port, or 0 for any free one"
            raise PortInUse(message) from error
        raise CsiError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return sock


def base_url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: Starlette) -> SignalFreeServer:
    """A server that stops without waiting for unfinished responses: a slow one may take forever."""
    return SignalFreeServer(
        uvicorn.Config(
            app,
            http=TransportProtocol,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=0,
        )
    )


async def serve_until_stopped(
    server: SignalFreeServer, sock: socket.socket, background: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> None:
    """Serve until `server.should_exit`; `background` runs in the same loop and is cancelled at the end."""
    task = asyncio.create_task(background()) if background else None
    try:
        await server.serve(sockets=[sock])
    finally:
        if task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
