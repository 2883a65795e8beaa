"""A scripted raw-socket HTTP server: it can drip, cut, reset, send a wrong length, or never answer.

    with RawServer([Send(answer(200, b"hello"))]) as server:
        Net().get(server.url + "/feed")

A script is a list of steps for one request. With several scripts each request takes the next one, and the
last is repeated. A function from `RawRequest` to a script works too. After a script without `Close` or `Reset` the
connection stays open for the next request.
"""

import contextlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Send:
    """These bytes at once."""

    data: bytes


@dataclass(frozen=True)
class Drip:
    """These bytes, a few at a time. Ends early when the peer leaves or the server stops."""

    data: bytes
    size: int = 1
    pause: float = 0.1


@dataclass(frozen=True)
class Flood:
    """The same bytes again and again until the peer leaves."""

    data: bytes


@dataclass(frozen=True)
class Hang:
    """Send nothing more and keep the connection open."""

    seconds: float = 3600.0


@dataclass(frozen=True)
class Close:
    """End the connection in an orderly way."""


@dataclass(frozen=True)
class Reset:
    """End the connection with a TCP reset."""


Step = Send | Drip | Flood | Hang | Close | Reset
Script = Sequence[Step]


@dataclass(frozen=True)
class RawRequest:
    """One request as it arrived. `connection` counts from 1."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass
class _Peer:
    sock: socket.socket
    number: int
    buffer: bytearray = field(default_factory=bytearray)


def answer(
    status: int = 200,
    body: bytes = b"",
    headers: Iterable[tuple[str, str]] = (),
    *,
    length: int | None = None,
) -> bytes:
    """A whole answer. `length` is what Content-Length claims; by default the real length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _wake(sock: socket.socket) -> None:
    """End a wait on this socket in another thread."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class RawServer:
    """Listens on loopback from creation on; `with` (or `stop`) ends every thread it started. Port 0: a free one."""

    def __init__(
        self,
        *scripts: Script | Callable[[RawRequest], Script],
        tls: ssl.SSLContext | None = None,
        read_requests: bool = True,
        receive_buffer: int | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[RawRequest] = []
        self.connections = 0
        self._scripts = list(scripts) or [[Send(answer())]]
        self._tls = tls
        self._read_requests = read_requests
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def targets(self) -> list[str]:
        """Path and query of every request, in order of arrival."""
        return [request.target for request in self.requests]

    def stop(self) -> None:
        self._over.set()
        for sock in [self._listener, *self._sockets]:
            _wake(sock)
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            self.connections += 1
            peer = _Peer(sock, self.connections)
            self._start(lambda peer=peer: self._serve(peer))  # type: ignore[misc]

    def _serve(self, peer: _Peer) -> None:
        try:
            peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                peer.sock.settimeout(5)
                peer.sock = self._tls.wrap_socket(peer.sock, server_side=True)
            peer.sock.settimeout(0.05)
            while self._serve_one(peer):
                pass
        except OSError:
            pass  # the peer closed the connection; tests examine the peer's side
        finally:
            peer.sock.close()

    def _serve_one(self, peer: _Peer) -> bool:
        asked = self._read(peer) if self._read_requests else RawRequest("", "", {}, b"", peer.number)
        if asked is None:
            return False
        with self._lock:
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            self.requests.append(asked)
        steps = script(asked) if callable(script) else script
        return all(self._play(peer.sock, step) for step in steps) and self._read_requests

    def _read(self, peer: _Peer) -> RawRequest | None:
        while b"\r\n\r\n" not in peer.buffer:
            if not self._fill(peer):
                return None
        head, _, rest = bytes(peer.buffer).partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines[1:])}
        size = int(headers.get("content-length", 0))
        peer.buffer = bytearray(rest)
        while len(peer.buffer) < size:
            if not self._fill(peer):
                return None
        body, peer.buffer = bytes(peer.buffer[:size]), peer.buffer[size:]
        method, target, _ = re.split(" +", lines[0], maxsplit=2)
        return RawRequest(method, target, headers, body, peer.number)

    def _fill(self, peer: _Peer) -> bool:
        while not self._over.is_set():
            try:
                data = peer.sock.recv(65536)
            except TimeoutError:
                continue
            peer.buffer += data
            return bool(data)
        return False

    def _play(self, sock: socket.socket, step: Step) -> bool:
        """Do one step; False when the connection is over."""
        match step:
            case Send(data):
                return self._push(sock, data)
            case Drip(data, size, pause):
                pieces = (data[at : at + size] for at in range(0, len(data), size))
                return all(self._push(sock, piece) and not self._over.wait(pause) for piece in pieces)
            case Flood(data):
                while self._push(sock, data):
                    pass
                return False
            case Hang(seconds):
                return not self._over.wait(seconds)
            case Reset():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case Close():
                return False

    def _push(self, sock: socket.socket, data: bytes) -> bool:
        view = memoryview(data)
        while view and not self._over.is_set():
            try:
                view = view[sock.send(view) :]
            except TimeoutError:
                continue
        return not self._over.is_set()


def static_page(status: int = 200) -> RawServer:
    """A server that answers every request with this status, an empty body and a Location header."""
    return RawServer([Send(answer(status, headers=[("Location", "/elsewhere")]))])


class Canary(RawServer):
    """Ledger N: an address that nothing may contact. `contacted` counts the connections."""

    def __init__(self) -> None:
        super().__init__([Close()], read_requests=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/never"

    @property
    def contacted(self) -> int:
        return self.connections
