"""Running the simulated YouTube: our own socket, a plain uvicorn, in this thread or beside it."""

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from csi.errors import CsiError, PortInUse

BACKLOG = 4096  # hundreds of feeds are polled in one moment


class TearableProtocol(H11Protocol):
    """Hands each request its transport, so that a fault can tear the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class QuietServer(uvicorn.Server):
    """Leaves the process's signals alone: whoever runs it decides how it stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; connections made from now on wait for the server. Port 0 takes a free one."""
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
        raise _bind_error(host, port, error) from error
    return sock


def base_url(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: Starlette) -> QuietServer:
    """Plain uvicorn. A stop waits for no answer that is still under way: slow ones may take for ever."""
    return QuietServer(
        uvicorn.Config(
            app,
            http=TearableProtocol,
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


@contextlib.contextmanager
def serve_in_background(app: Starlette, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve `app` from another thread; gives its base URL, and on leaving waits until it has ended."""
    sock = bind(host, port)
    server = make_server(app)
    thread = threading.Thread(target=_run, args=(server, sock), name="simulated-youtube", daemon=True)
    thread.start()
    try:
        yield base_url(sock)
    finally:
        server.should_exit = True
        thread.join(10)
        sock.close()


async def serve_until(
    server: QuietServer, sock: socket.socket, beside: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> None:
    """Serve until `server.should_exit`; `beside` runs in the same loop and ends with it."""
    work = asyncio.create_task(beside()) if beside else None
    try:
        await server.serve(sockets=[sock])
    finally:
        if work:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work


def _run(server: QuietServer, sock: socket.socket) -> None:
    asyncio.run(serve_until(server, sock))


def _bind_error(host: str, port: int, error: OSError) -> CsiError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(f"{host}:{port} is taken by another program; choose another --port, or 0 for any free one")
    return CsiError(f"cannot listen on {host}:{port}: {error.strerror}")
