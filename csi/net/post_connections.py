"""POST over kept connections: the request in one write, a plain answer read without httpx, any other one by h11.

httpx spends more processor time on a small request than the receiver. Sockets, deadline, address guard and TLS are
those of `csi.net.deadline`, as for GET; the body of an answer is read by `read_body` with the same limits.
"""

import re
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from csi.net.address_guard import AddressGuard
from csi.net.deadline import HEAD_END, KEEPALIVE_SECONDS, PIECE, DeadlineBackend, DeadlineStream, call
from csi.net.httpx_import import h11, httpcore, httpx
from csi.net.response import HttpHeaders, read_body

READ_BYTES = 64 * 1024
READS = 4
"""An answer that came in more pieces than this is left to h11."""

MAX_HEAD = 100 * 1024
_PLAIN_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-5]\d\d)(?: [\t -~]*)?\r\n((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~]*\r\n){1,100})\r\n"
)
_LENGTH = re.compile(r"[0-9]{1,15}")
_UNUSUAL = frozenset({"transfer-encoding", "content-encoding", "upgrade"})


@dataclass(frozen=True)
class Answer:
    """The complete answer to one POST."""

    status: int
    headers: HttpHeaders
    body: bytes
    certificate_expires_at: float | None


class PostConnections:
    """Connections of one process, kept for the next request to the same host. Threads may share them."""

    def __init__(self, tls: ssl.SSLContext, most: int, guard: AddressGuard | None) -> None:
        self._tls, self._most, self._backend = tls, most, DeadlineBackend(guard)
        self._lock, self._room = threading.Lock(), threading.BoundedSemaphore(most)
        self._idle: deque[tuple[float, httpx.URL, DeadlineStream]] = deque()
        """Until when it may be used, the origin, the connection; the oldest first."""

    def exchange(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: bytes, *, connect: float, limit: int,
        where: str,
    ) -> Answer:  # fmt: skip
        """Raises the errors of httpx and NetError. `limit`: bytes of the answer's body."""
        if not self._room.acquire(timeout=max(call.ends - time.monotonic(), 0)):
            raise httpx.PoolTimeout("no free connection")
        try:
            return self._exchange(method, url, headers, body, connect, limit, where)
        except httpcore_errors() as error:
            raise getattr(httpx, type(error).__name__, httpx.ReadError)(str(error)) from error
        finally:
            self._room.release()

    def _exchange(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: bytes, connect: float, limit: int,
        where: str,
    ) -> Answer:  # fmt: skip
        origin = url.copy_with(raw_path=b"/")
        stream, is_kept = self._take(origin) or self._connect(origin, connect), False
        try:
            with suppress(httpcore.WriteError):  # a server may answer and close before it has read the whole request
                head = request_head(method, url, headers, len(body))
                if len(body) <= PIECE:  # a small request is one packet
                    stream.write(head + body)
                else:
                    stream.write(head)
                    stream.write(body)
            answer, is_kept = _read(stream, limit, where)
            return answer
        finally:
            if is_kept:
                with self._lock:
                    self._idle.append((time.monotonic() + KEEPALIVE_SECONDS, origin, stream))
                    self._close_expired()
            else:
                stream.close()

    def _connect(self, origin: httpx.URL, timeout: float) -> DeadlineStream:
        host = origin.raw_host.decode("ascii")
        stream = self._backend.connect_tcp(host, origin.port or (443 if origin.scheme == "https" else 80), timeout)
        assert isinstance(stream, DeadlineStream)
        if origin.scheme != "https":
            return stream
        self._tls.set_alpn_protocols(["http/1.1"])
        try:
            secured = stream.start_tls(self._tls, host, timeout)
        except BaseException:
            stream.close()
            raise
        assert isinstance(secured, DeadlineStream)
        return secured

    def _take(self, origin: httpx.URL) -> DeadlineStream | None:
        """The connection to this host that was used last. One that the server has closed, or written to, is closed."""
        while True:
            with self._lock:
                self._close_expired()
                found = next((one for one in reversed(self._idle) if one[1] == origin), None)
                if found is None:
                    return None
                self._idle.remove(found)
            if not found[2].get_extra_info("is_readable"):
                return found[2]
            found[2].close()

    def _close_expired(self) -> None:
        now = time.monotonic()
        while self._idle and (self._idle[0][0] <= now or len(self._idle) > self._most):
            self._idle.popleft()[2].close()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            while self._idle:
                self._idle.popleft()[2].close()


def httpcore_errors() -> tuple[type[Exception], ...]:
    return (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)


def request_head(method: str, url: httpx.URL, headers: Mapping[str, str], length: int) -> bytes:
    """The names and values are checked before (`check_headers`)."""
    own = {"content-length", "host", "connection", "transfer-encoding"}
    lines = [f"{name}: {value}" for name, value in headers.items() if name.lower() not in own]
    target, host = url.raw_path.decode("ascii"), url.netloc.decode("ascii")
    head = [f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, f"Content-Length: {length}", "", ""]
    return "\r\n".join(head).encode("latin-1")


def _read(stream: DeadlineStream, limit: int, where: str) -> tuple[Answer, bool]:
    """The answer, and whether the connection may be used again."""
    received = b""
    for _ in range(READS):
        data = stream.read(READ_BYTES)
        received += data
        if not data or len(received) > min(limit, MAX_HEAD):
            break
        if HEAD_END.search(received) is None:
            continue
        plain = _plain(received)
        if plain is None or plain.length > limit or len(plain.body) > plain.length:
            break
        if len(plain.body) == plain.length:
            answer = Answer(plain.status, plain.headers, plain.body, stream.certificate_expires_at())
            return answer, plain.headers.get("connection", "keep-alive").lower() == "keep-alive"
    return _read_by_h11(stream, received, limit, where)


@dataclass(frozen=True)
class PlainAnswer:
    """The answer as far as it has arrived; its body should have `length` bytes."""

    status: int
    headers: HttpHeaders
    body: bytes
    length: int


def _plain(received: bytes) -> PlainAnswer | None:
    """None: h11 has to read it, because it does not say how long it is, is encoded, or is unusual in any other way."""
    head = _PLAIN_HEAD.match(received)
    if head is None or head[1] in (b"204", b"205", b"304"):
        return None
    pairs = [line.partition(":") for line in head[2].decode("ascii").split("\r\n")[:-1]]
    headers = HttpHeaders([(name, value.strip()) for name, _, value in pairs])
    lengths = headers.get_list("content-length")
    if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]) or not _UNUSUAL.isdisjoint(headers):
        return None
    return PlainAnswer(int(head[1]), headers, received[head.end() :], int(lengths[0]))


class _H11Body(httpx.SyncByteStream):
    """The rest of an answer whose head h11 has read."""

    def __init__(self, connection: h11.Connection, stream: DeadlineStream) -> None:
        self._connection, self._stream = connection, stream

    def __iter__(self) -> Iterator[bytes]:
        while isinstance(event := _next_event(self._connection, self._stream), h11.Data):
            yield bytes(event.data)


def _read_by_h11(stream: DeadlineStream, received: bytes, limit: int, where: str) -> tuple[Answer, bool]:
    """`received`: empty where the server closed the connection without an answer."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    # Our side of the exchange is over: h11 has to know that, but not what was sent.
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "sent"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    if received:
        connection.receive_data(received)
    if not received or call.cut:
        connection.receive_data(b"")
    event = _next_event(connection, stream)
    while isinstance(event, h11.InformationalResponse) and event.status_code != 101:
        event = _next_event(connection, stream)
    if not isinstance(event, h11.Response):
        raise httpcore.RemoteProtocolError("no response")
    response = httpx.Response(
        event.status_code,
        headers=event.headers.raw_items(),
        stream=_H11Body(connection, stream),
        extensions={"network_stream": stream},
    )
    body = read_body(response, limit, where)
    is_kept = connection.their_state is h11.DONE and not connection.trailing_data[0]
    headers = HttpHeaders(response.headers.multi_items())
    return Answer(event.status_code, headers, body, stream.certificate_expires_at()), is_kept


def _next_event(connection: h11.Connection, stream: DeadlineStream) -> Any:
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            raise httpcore.RemoteProtocolError(str(error)) from error
        if event is not h11.NEED_DATA:
            return event
        connection.receive_data(stream.read(READ_BYTES))
