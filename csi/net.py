"""Bounded HTTP: one deadline for a whole exchange and a cap on what an answer may weigh."""

import errno
import functools
import ipaddress
import math
import os
import re
import socket
import ssl
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from csi import __version__, exclusive
from csi.errors import NetError
from csi.import_blocker import without

with without("httpx._main", "trio"):  # a command line with rich and pygments, and another kind of asyncio: 7 MB
    import httpcore
    import httpx

USER_AGENT = f"csi/{__version__} (creator signal ingester)"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# What may follow a redirect to another (allowed) host: never a key, a token or a header we do not know.
TRAVELLING_HEADERS = frozenset({"accept", "accept-language", "if-modified-since", "if-none-match"})
# Shorter than the 5 s after which uvicorn and Node close an idle connection: reusing one that is just being
# closed would look like a lost answer.
KEEPALIVE_SECONDS = 4.0
PIECE = 16 * 1024

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_URL_CHARACTERS = re.compile(r"[^\x00-\x20\x7f-\x9f\u2028\u2029]+")
_HEAD_END = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"HTTP/\d\.\d 1(?!01)\d\d")


class Headers(Mapping[str, str]):
    """An answer's headers, in any case. `headers[name]` is the first value, `get_list` gives all of them."""

    def __init__(self, items: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        pairs = items.items() if isinstance(items, Mapping) else items
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name.lower(), []).append(value)

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __repr__(self) -> str:
        return f"Headers({sorted(self._values)})"  # names only: values may be somebody's secret

    def get_list(self, name: str) -> list[str]:
        return list(self._values.get(name.lower(), ()))


@dataclass(frozen=True)
class Answer:
    """A complete answer, whatever its status."""

    status: int
    headers: Headers
    body: bytes
    url: str
    """The URL that answered, without its query: safe to log."""
    elapsed: float = 0.0


@dataclass(frozen=True)
class Limits:
    """What one call may cost. `total` covers all of it: a free connection, TLS, headers, body, redirects.

    Only a name lookup can outlast it: the system's resolver cannot be interrupted.
    """

    total: float = 20.0
    connect: float = 10.0
    max_body: int = 8 * 1024 * 1024
    """Bytes of the body, after decompression."""
    max_redirects: int = 3


DEFAULT_LIMITS = Limits()


class Net:
    """GET and POST with limits over one pool of connections. Threads may share it; cheap until first used."""

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        allow_insecure_http: bool = False,
        allowed_redirect_hosts: frozenset[str] | None = None,
        verify: ssl.SSLContext | None = None,
        user_agent: str = USER_AGENT,
        max_connections: int = 64,
        max_per_host: int = 16,
    ) -> None:
        self.limits = limits
        self._insecure = allow_insecure_http
        self._redirect_hosts = allowed_redirect_hosts or frozenset()
        self._verify = verify
        self._agent = _check_headers({"User-Agent": user_agent})["User-Agent"]
        self._max_connections = max_connections
        self._lanes = _Lanes(max_per_host)
        self._lock = threading.Lock()
        self._pool: tuple[int, _Transport] | None = None

    def get(self, url: str, *, headers: Mapping[str, str] = NO_HEADERS, limits: Limits | None = None) -> Answer:
        """One GET. Redirects are followed on the same host, or to `allowed_redirect_hosts`. No more than
        `max_per_host` at once from one host: others wait for their turn within their own deadline."""
        limits = limits or self.limits
        with _deadline(limits.total):
            target = self._check_url(url)
            sent = _check_headers(headers)
            seen = [target]
            while True:
                with self._lanes.turn(_host(target), _where(target)):
                    answer = self._exchange("GET", target, sent, None, limits)
                if answer.status not in REDIRECTS:
                    return answer
                target = self._next_hop(answer, seen, limits)
                sent = sent if _same_place(seen[-1], target) else _travelling(sent)
                seen.append(target)

    def post(self, url: str, *, body: bytes, headers: Mapping[str, str], limits: Limits | None = None) -> Answer:
        """One POST of exactly these bytes. A redirect is an answer like any other: it is never followed."""
        limits = limits or self.limits
        with _deadline(limits.total):
            return self._exchange("POST", self._check_url(url), _check_headers(headers), body, limits)

    def requests_to(self, host: str) -> int:
        """GETs that are under way to this host (`name` or `name:port`), those that wait for their turn included."""
        return self._lanes.taken(host)

    def close(self) -> None:
        """Close the pool. A later call opens a new one."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            pool[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_url(self, text: str) -> httpx.URL:
        url = _parse_url(text)
        if url.scheme == "http" and not (self._insecure or is_loopback(url.host)):
            raise NetError(
                f"{_where(url)}: plain http is only for this machine; use https", kind="insecure", sent=False
            )
        return url

    def _next_hop(self, answer: Answer, seen: list[httpx.URL], limits: Limits) -> httpx.URL:
        where = _where(seen[-1])
        there = self._check_location(answer.headers.get_list("location"), seen[-1])
        if len(seen) > limits.max_redirects:
            raise NetError(f"{where}: more than {limits.max_redirects} redirects", kind="redirect")
        if there in seen:
            raise NetError(f"{where}: redirects in a circle", kind="redirect")
        return there

    def _check_location(self, locations: list[str], here: httpx.URL) -> httpx.URL:
        where = _where(here)
        if len(locations) != 1:
            raise NetError(f"{where}: a redirect without one clear target", kind="redirect")
        try:
            there = self._check_url(str(here.join(locations[0])))
        except (NetError, httpx.InvalidURL, ValueError):
            raise NetError(f"{where}: redirects to an address that is not allowed", kind="redirect") from None
        if here.scheme == "https" and there.scheme != "https":
            raise NetError(f"{where}: redirects from https to http", kind="redirect")
        if not self._may_follow(here, there):
            raise NetError(f"{where}: redirects to another host ({_host(there)[:100]})", kind="redirect")
        return there

    def _may_follow(self, here: httpx.URL, there: httpx.URL) -> bool:
        if _same_place(here, there):
            return True
        if is_loopback(here.host) or is_loopback(there.host):
            return False
        return _host(there) in self._redirect_hosts

    def _exchange(
        self, method: str, url: httpx.URL, headers: dict[str, str], body: bytes | None, limits: Limits
    ) -> Answer:
        started, where = time.monotonic(), _where(url)
        request = self._request(method, url, headers, body, limits)
        try:
            response = self._transport().handle_request(request)
            try:
                content = b"" if _will_follow(method, response) else _read_body(response, limits.max_body, where)
            finally:
                response.close()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _explain(error, where, limits) from None
        return Answer(
            status=response.status_code,
            headers=Headers(response.headers.multi_items()),
            body=content,
            url=f"{url.scheme}://{where}",
            elapsed=time.monotonic() - started,
        )

    def _request(
        self, method: str, url: httpx.URL, headers: dict[str, str], body: bytes | None, limits: Limits
    ) -> httpx.Request:
        merged = httpx.Headers({"User-Agent": self._agent, "Accept": "*/*"}, encoding="latin-1")
        for name, value in headers.items():
            merged[name] = value
        merged["Accept-Encoding"] = "gzip"
        timeout = httpx.Timeout(limits.total, connect=min(limits.connect, limits.total))
        return httpx.Request(method, url, headers=merged, content=body, extensions={"timeout": timeout.as_dict()})

    def _transport(self) -> "_Transport":
        with self._lock:
            # Sockets are not for sharing with a forked child: each process gets a pool of its own.
            if self._pool is None or self._pool[0] != os.getpid():
                self._pool = (os.getpid(), _Transport(self._verify or _default_tls(), self._max_connections))
            return self._pool[1]


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this machine: `localhost`, 127.0.0.0/8 or ::1. No name is looked up."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# ── what may be sent ────────────────────────────────────────────────────────────────────────────────────


@functools.lru_cache(maxsize=256)  # most calls go to the same few addresses
def _parse_url(text: str) -> httpx.URL:
    """The address as httpx will use it. The message never repeats an address that could hold a secret."""
    if not _URL_CHARACTERS.fullmatch(text):
        raise NetError("the address is empty or has blanks or control characters in it", kind="bad_url", sent=False)
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise NetError("the address cannot be read as a URL", kind="bad_url", sent=False) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise NetError("the address must begin with https:// and name a host", kind="bad_url", sent=False)
    if url.port is not None and not 0 < url.port < 65536:
        raise NetError("the address has a port outside 1 … 65535", kind="bad_url", sent=False)
    if url.userinfo:
        raise NetError(f"{_where(url)}: no user or password in an address", kind="bad_url", sent=False)
    return url


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise NetError("a header name has characters that HTTP does not allow", kind="protocol", sent=False)
        if not _HEADER_VALUE.fullmatch(value):
            raise NetError(
                f"header {name}: the value has a line break, a control character, a blank at its edge or a "
                "character outside Latin-1; check the setting it comes from",
                kind="protocol",
                sent=False,
            )
    return dict(headers)


def _travelling(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() in TRAVELLING_HEADERS}


def _host(url: httpx.URL) -> str:
    """`host`, or `host:port` where the port is not the scheme's own."""
    return url.netloc.decode("ascii", "replace")


def _where(url: httpx.URL) -> str:
    return _host(url) + url.raw_path.partition(b"?")[0].decode("ascii", "replace")[:200]


def _same_place(here: httpx.URL, there: httpx.URL) -> bool:
    """The same host and port: another port of a machine is another service. http → https stays there."""
    return _host(here) == _host(there)


def _will_follow(method: str, response: httpx.Response) -> bool:
    return method == "GET" and response.status_code in REDIRECTS


# ── what comes back ─────────────────────────────────────────────────────────────────────────────────────


def _read_body(response: httpx.Response, limit: int, where: str) -> bytes:
    zipped = _is_gzip(response.headers.get_list("content-encoding"), where)
    announced = _announced(response)
    if announced is not None and announced > limit:
        raise _too_large(where, limit)
    # The stream itself and not `iter_raw`, which refuses the ready-made answers of test tools.
    chunks: Iterable[bytes] = response.stream  # type: ignore[assignment]
    body = _collect(_unzip(chunks, where) if zipped else chunks, limit, where)
    _check_surplus(response, announced, where)
    return body


def _is_gzip(encodings: list[str], where: str) -> bool:
    names = [name.strip().lower() for line in encodings for name in line.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if not names:
        return False
    if names in (["gzip"], ["x-gzip"]):
        return True
    raise NetError(f"{where}: an encoding other than one gzip", kind="bad_encoding")


def _announced(response: httpx.Response) -> int | None:
    """How long the body will be on the wire. None when the answer does not say."""
    if response.status_code in (204, 304):
        return 0
    length = response.headers.get("content-length", "")
    known = length.isascii() and length.isdigit() and "transfer-encoding" not in response.headers
    return int(length) if known else None


def _collect(chunks: Iterable[bytes], limit: int, where: str) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise _too_large(where, limit)
        _time_left()
    return bytes(body)


def _unzip(chunks: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Decompressed pieces of a bounded size, so that a bomb is noticed before it has gone off."""
    member = zlib.decompressobj(wbits=31)
    begun = False
    try:
        for data in chunks:
            while data:
                begun = True
                member = zlib.decompressobj(wbits=31) if member.eof else member
                yield member.decompress(data, 4 * PIECE)
                data = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error:
        raise NetError(f"{where}: the body is not the gzip it claims to be", kind="bad_encoding") from None
    if begun and not member.eof:
        raise NetError(f"{where}: the gzip body ends too early", kind="bad_encoding")


def _check_surplus(response: httpx.Response, announced: int | None, where: str) -> None:
    """More bytes than announced would be read as the answer to the next request on this connection."""
    stream = response.extensions.get("network_stream")
    if announced is None or not isinstance(stream, _Stream) or stream.meter.body <= announced:
        return
    stream.close()
    raise NetError(f"{where}: the body is longer than its Content-Length", kind="protocol")


def _too_large(where: str, limit: int) -> NetError:
    return NetError(f"{where}: the answer is larger than {limit:,} bytes", kind="too_large")


# ── why it failed ───────────────────────────────────────────────────────────────────────────────────────


def _explain(error: Exception, where: str, limits: Limits) -> NetError:
    """Our error for httpx's. Its text is left behind: it may quote a URL with a key, or a header."""
    kind, words = _name_failure(error, limits)
    unsent = isinstance(error, httpx.PoolTimeout | httpx.ConnectTimeout | httpx.ConnectError)
    return NetError(f"{where}: {words}", kind=kind, sent=not unsent)


def _name_failure(error: Exception, limits: Limits) -> tuple[str, str]:
    match error:
        case httpx.PoolTimeout():
            return "busy", "no free connection; too many requests at once"
        case httpx.ConnectTimeout():
            return "timeout", f"no connection within {min(limits.connect, limits.total):g} s"
        case httpx.TimeoutException():
            return "timeout", f"no complete answer within {limits.total:g} s"
        case httpx.NetworkError():
            return _name_break(error)
        case httpx.RemoteProtocolError() if _call.cut:
            return "reset", "the connection closed before the answer was complete"
        case httpx.RemoteProtocolError():
            return "protocol", "the answer is not valid HTTP"
        case _:
            return "protocol", f"the exchange failed ({type(error).__name__})"


def _name_break(error: httpx.NetworkError) -> tuple[str, str]:
    cause = _system_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "tls", f"the certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "tls", f"no TLS connection ({cause.reason or 'handshake failed'})"
    if not isinstance(error, httpx.ConnectError):
        return "reset", "the connection broke before the answer was complete"
    if isinstance(cause, socket.gaierror | UnicodeError):
        return "connect", "the host name does not resolve"
    return "connect", f"cannot connect ({_words(cause)})"


def _system_error(error: BaseException) -> BaseException | None:
    """The operating system's error at the bottom of httpx's and httpcore's."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError | UnicodeError):
        cause = cause.__cause__ or cause.__context__  # httpcore's pool raises `from None`
    return cause


def _words(cause: BaseException | None) -> str:
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno in errno.errorcode:
        return os.strerror(cause.errno)
    return "the connection closed"


# ── the deadline ────────────────────────────────────────────────────────────────────────────────────────


class _Call(threading.local):
    """The call that this thread is making."""

    ends: float = math.inf
    cut: bool = False


_call = _Call()


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    _call.ends, _call.cut = time.monotonic() + seconds, False
    try:
        yield
    finally:
        _call.ends = math.inf


def _time_left() -> float:
    left = _call.ends - time.monotonic()
    if left <= 0:
        raise httpx.ReadTimeout("the deadline has passed")
    return left


def _cap(timeout: float | None) -> float:
    """What a single wait may take: httpx's own timeouts begin anew with every byte that drips in."""
    left = _call.ends - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the deadline has passed")
    return left if timeout is None else min(timeout, left)


class _Lanes:
    """So many requests at once to one host. Who waits for one host holds up nobody who wants another."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._change = threading.Condition()
        self._open: Counter[str] = Counter()
        self._asking: Counter[str] = Counter()

    @contextmanager
    def turn(self, host: str, where: str) -> Iterator[None]:
        with self._change:
            self._asking[host] += 1
        try:
            self._enter(host, where)
            try:
                yield
            finally:
                self._leave(host)
        finally:
            with self._change:
                self._asking[host] -= 1
                self._asking += Counter()  # forgets hosts that nobody asks: a long life sees many

    def taken(self, host: str) -> int:
        with self._change:
            return self._asking[host]

    def _enter(self, host: str, where: str) -> None:
        with self._change:
            if not self._change.wait_for(lambda: self._open[host] < self._limit, _call.ends - time.monotonic()):
                raise NetError(
                    f"{where}: {self._limit} requests to this host are under way already", kind="busy", sent=False
                )
            self._open[host] += 1

    def _leave(self, host: str) -> None:
        with self._change:
            self._open[host] -= 1
            self._open += Counter()
            self._change.notify_all()


class _Transport(httpx.HTTPTransport):
    """httpx's transport over a pool whose sockets know the deadline.

    `handle_request` stays httpx's own, so that pytest-httpx can stand in for it.
    """

    def __init__(self, tls: ssl.SSLContext, max_connections: int) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=max_connections,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=_Backend(),
        )


class _Backend(httpcore.NetworkBackend):
    """Connects within what is left of the call, however many addresses a name has."""

    @exclusive.left()
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        ends = time.monotonic() + _cap(timeout)
        addresses = _look_up(host, port)
        failure: Exception = httpcore.ConnectTimeout("the name lookup took all the time")
        for tried, address in enumerate(addresses):
            left = min(ends, _call.ends) - time.monotonic()
            if left <= 0:
                break
            try:
                # A fair share each: one dead IPv6 address must not use up the time of the IPv4 one.
                share = left / (len(addresses) - tried)
                return _Stream(_SYSTEM.connect_tcp(address, port, share, local_address, socket_options or ()))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class _Stream(httpcore.NetworkStream):
    """A connection on which no single wait outlasts the call."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner
        self.meter = _Meter()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with exclusive.left():
            data = self._inner.read(max_bytes, _cap(timeout))
        _call.cut = not data
        self.meter.feed(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.meter = _Meter()
        # What fits into the socket's own buffer does not wait, and the desk is not left for it.
        with exclusive.left() if len(buffer) > PIECE else nullcontext():
            # In pieces, each with what is left: one long write begins its timeout anew whenever a byte was taken.
            for start in range(0, len(buffer), PIECE):
                self._inner.write(buffer[start : start + PIECE], _cap(timeout))

    def close(self) -> None:
        self._inner.close()

    @exclusive.left()
    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _cap(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Meter:
    """Counts the bytes after an answer's headers."""

    def __init__(self) -> None:
        self.body = 0
        self._head: bytearray | None = bytearray()

    def feed(self, data: bytes) -> None:
        while self._head is not None:
            seen = max(0, len(self._head) - 3)
            self._head += data
            end = _HEAD_END.search(self._head, seen)
            if end is None:
                return
            head, data = self._head[: end.end()], bytes(self._head[end.end() :])
            self._head = bytearray() if _INTERIM.match(head) else None  # 100 Continue: the real headers follow
        self.body += len(data)


_SYSTEM = httpcore.SyncBackend()


def _look_up(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError("the host name does not resolve") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@functools.cache
def _default_tls() -> ssl.SSLContext:
    """certifi's roots, or those of SSL_CERT_FILE / SSL_CERT_DIR. Shared: reading them takes 20 ms."""
    try:
        return httpx.create_ssl_context(trust_env=True)
    except (OSError, ssl.SSLError):
        raise NetError("SSL_CERT_FILE or SSL_CERT_DIR names no usable certificates", kind="tls", sent=False) from None
