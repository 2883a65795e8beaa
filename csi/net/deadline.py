"""The deadline of a call, kept by every wait of its connection; and the slots of each host: its concurrent requests."""

import functools
import math
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from csi import exclusive_section
from csi.errors import NetError
from csi.net import certificate
from csi.net.address_guard import AddressGuard, ConfiguredHosts, is_public, without_metadata
from csi.net.httpx_import import httpcore, httpx

# Shorter than the 5 s after which uvicorn and Node close an idle connection: a request on a connection that the
# server is closing would look like a lost response.
KEEPALIVE_SECONDS = 4.0
PIECE = 16 * 1024

# Interim (1xx) responses before the final one: servers send one or two
MAX_INTERIM = 16

NOT_PUBLIC = "the host has no public address"
PLAIN_TO_PUBLIC = "plain http to a public address"
WASTEFUL = "the response has far more bytes on the wire than in its body"

HEAD_END = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"HTTP/\d\.\d 1(?!01)\d\d")


class CallDeadline(threading.local):
    """State of the call that this thread is making."""

    ends: float = math.inf
    cut: bool = False
    plain_http: bool = False
    wire_left: float = math.inf
    """Bytes that may still be received: heads, chunk sizes and extensions, trailers and bodies of all its responses."""


call = CallDeadline()


@contextmanager
def deadline(seconds: float, *, max_wire: float = math.inf) -> Iterator[None]:
    call.ends, call.cut, call.wire_left = time.monotonic() + seconds, False, max_wire
    try:
        yield
    finally:
        call.ends = call.wire_left = math.inf


def require_time_left() -> float:
    left = call.ends - time.monotonic()
    if left <= 0:
        raise httpx.ReadTimeout("the deadline has passed")
    return left


def _cap(timeout: float | None) -> float:
    """The longest single wait: the timeouts of httpx restart with every received byte, so a slow drip never ends."""
    left = call.ends - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the deadline has passed")
    return left if timeout is None else min(timeout, left)


class HostSlots:
    """Limits concurrent requests per host. Waiting for one host does not block requests to another."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._change = threading.Condition()
        self._open: Counter[str] = Counter()

    @contextmanager
    def hold(self, host: str, where: str) -> Iterator[None]:
        with self._change:
            if not self._change.wait_for(lambda: self._open[host] < self._limit, call.ends - time.monotonic()):
                reason = f"{where}: {self._limit} requests to this host are already under way"
                raise NetError(reason, kind="busy", sent=False)
            self._open[host] += 1
        try:
            yield
        finally:
            with self._change:
                self._open[host] -= 1
                self._open += Counter()  # drops zero entries: a long-lived process sees many hosts
                self._change.notify_all()


class DeadlineTransport(httpx.HTTPTransport):
    """The transport of httpx over a pool whose sockets keep the deadline.

    `handle_request` is inherited, so that pytest-httpx can replace it.
    """

    def __init__(self, tls: ssl.SSLContext, max_connections: int, guard: AddressGuard | None = None) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=max_connections,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=DeadlineBackend(guard),
        )


class DeadlineBackend(httpcore.NetworkBackend):
    """Connects within the rest of the deadline, however many addresses a name has, and only where the guard allows."""

    def __init__(self, guard: AddressGuard | None = None) -> None:
        self._guard = guard

    @exclusive_section.released()
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        ends = time.monotonic() + _cap(timeout)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError("the host name does not resolve") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        guard = self._guard
        match guard:
            case None:
                reached = without_metadata(host, addresses)
            case ConfiguredHosts():
                reached = guard.reachable(host, port, addresses, plain_http=call.plain_http)
            case _:
                reached = guard.public(host, port, addresses)
        if not reached:
            is_public_name = isinstance(guard, ConfiguredHosts) and any(is_public(address) for address in addresses)
            raise httpcore.ConnectError(PLAIN_TO_PUBLIC if is_public_name else NOT_PUBLIC)
        addresses = reached
        failure: Exception = httpcore.ConnectTimeout("the name lookup took all the time")
        for tried, address in enumerate(addresses):
            left = min(ends, call.ends) - time.monotonic()
            if left <= 0:
                break
            try:
                # An equal share each: one unreachable IPv6 address must not use up the time of the IPv4 address.
                share = left / (len(addresses) - tried)
                return DeadlineStream(_SYSTEM.connect_tcp(address, port, share, local_address, socket_options or ()))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class DeadlineStream(httpcore.NetworkStream):
    """A connection on which no single wait outlasts the deadline."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner
        self.meter = BodyMeter()
        self._expires_at: float | None = None
        self._is_expiry_read = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with exclusive_section.released():
            data = self._inner.read(max_bytes, _cap(timeout))
        call.cut = not data
        call.wire_left -= len(data)
        self.meter.feed(data)
        if call.wire_left < 0 or self.meter.interim > MAX_INTERIM:
            raise httpcore.RemoteProtocolError(WASTEFUL)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.meter = BodyMeter()
        # A write that fits into the socket's buffer does not wait: the exclusive section is kept for it.
        with exclusive_section.released() if len(buffer) > PIECE else nullcontext():
            # In pieces, each with the rest of the deadline: one long write restarts its timeout with every byte.
            for start in range(0, len(buffer), PIECE):
                self._inner.write(buffer[start : start + PIECE], _cap(timeout))

    def close(self) -> None:
        self._inner.close()

    @exclusive_section.released()
    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, _cap(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def certificate_expires_at(self) -> float | None:
        """Read once per connection: decoding a certificate takes longer than a small request."""
        if not self._is_expiry_read:
            self._expires_at = certificate.expires_at(self.get_extra_info("ssl_object"))
            self._is_expiry_read = True
        return self._expires_at


class BodyMeter:
    """Counts the body bytes of a response as they arrive, and the interim responses before it."""

    def __init__(self) -> None:
        self.body = 0
        self.interim = 0
        self._head: bytearray | None = bytearray()

    def feed(self, data: bytes) -> None:
        while self._head is not None:
            seen = max(0, len(self._head) - 3)
            self._head += data
            end = HEAD_END.search(self._head, seen)
            if end is None:
                return
            head, data = self._head[: end.end()], bytes(self._head[end.end() :])
            is_interim = _INTERIM.match(head) is not None  # 1xx: the final headers follow
            self._head = bytearray() if is_interim else None
            self.interim += is_interim
            if self.interim > MAX_INTERIM:
                return
        self.body += len(data)


_SYSTEM = httpcore.SyncBackend()


@functools.cache
def default_tls() -> ssl.SSLContext:
    """The roots of certifi, or of SSL_CERT_FILE / SSL_CERT_DIR. Cached: reading them takes 20 ms."""
    try:
        return httpx.create_ssl_context(trust_env=True)
    except (OSError, ssl.SSLError):
        raise NetError("SSL_CERT_FILE or SSL_CERT_DIR holds no usable certificates", kind="tls", sent=False) from None
