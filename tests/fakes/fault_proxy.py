"""A fault proxy between CSI and the real receiver: each answer passes, is late, slow or cut, or is lost."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Manner:
    """How one answer travels. `keep` is how many bytes of it pass before a reset; None: all."""

    latency: float = 0.0
    keep: int | None = None
    pause: float = 0.0
    """Seconds between two pieces: with `piece` bytes each this is drip and bandwidth."""
    piece: int = 65_536
    refuse: bool = False
    """The connection ends before the request is delivered."""


PASS = Manner()
LOST = Manner(keep=0)
"""The receiver accepts the request, and the whole answer is lost."""


class FaultProxy:
    """Forwards bytes to `upstream` (host, port). `manner()` is called once for every answer."""

    def __init__(self, upstream: tuple[str, int], manner: Callable[[], Manner] = lambda: PASS) -> None:
        self.upstream, self.manner = upstream, manner
        self.answers = self.lost = self.refused = 0
        self.lost_events = 0
        """In requests that were delivered whole and whose answer was not."""
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            self._start(lambda client=client: self._serve(client))  # type: ignore[misc]

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.upstream, timeout=10)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        self._sockets.append(server)
        with client, server, contextlib.suppress(OSError):
            self._exchange(client, server)

    def _exchange(self, client: socket.socket, server: socket.socket) -> None:
        """Request, answer, request, answer: HTTP/1.1 without pipelining, as our client speaks it."""
        while not self._over.is_set():
            request = _read_message(client)
            if not request:
                return
            manner = self.manner()
            if manner.refuse:
                self.refused += 1
                _reset(client)
                return
            server.sendall(request)
            if not self._forward_answer(client, server, manner):
                self.lost_events += request.count(b'"event_id":')
                return

    def _forward_answer(self, client: socket.socket, server: socket.socket, manner: Manner) -> bool:
        answer = _read_message(server)
        self.answers += 1
        self._over.wait(manner.latency)
        kept = answer if manner.keep is None else answer[: manner.keep]
        for at in range(0, len(kept), manner.piece):
            client.sendall(kept[at : at + manner.piece])
            if manner.pause and self._over.wait(manner.pause):
                return False
        if len(kept) < len(answer):
            self.lost += 1
            _reset(client)
            return False
        return bool(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for sock in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def _read_message(sock: socket.socket) -> bytes:
    """One whole HTTP message with a Content-Length, or nothing when the peer is gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    size = _content_length(head)
    while len(body) < size:
        piece = sock.recv(65_536)
        if not piece:
            return b""
        body += piece
    return head + b"\r\n\r\n" + body


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
