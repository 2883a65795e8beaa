"""Serve an application of the simulator from a thread of the test."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from starlette.applications import Starlette

from csi.simulator.http_server import base_url, listen, make_server, serve_until_stopped


@contextlib.contextmanager
def serve_in_background(app: Starlette, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve `app` from another thread and yield its base URL; leaving the context waits for the thread to end."""
    sock = listen(host, port)
    server = make_server(app)
    thread = threading.Thread(
        target=lambda: asyncio.run(serve_until_stopped(server, sock)), name="simulator", daemon=True
    )
    thread.start()
    try:
        yield base_url(sock)
    finally:
        server.should_exit = True
        thread.join(10)
        sock.close()
