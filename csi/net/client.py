"""GET and POST with limits over one pool of connections; which URLs and headers may be sent; what a failure means."""

import errno
import functools
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, Self

from csi import __version__, clock
from csi.errors import NetError
from csi.net import certificate
from csi.net.address_guard import AddressGuard, ConfiguredHosts
from csi.net.deadline import (
    NOT_PUBLIC,
    PLAIN_TO_PUBLIC,
    WASTEFUL,
    DeadlineStream,
    DeadlineTransport,
    HostSlots,
    call,
    deadline,
    default_tls,
)
from csi.net.httpx_import import httpx
from csi.net.post_connections import PostConnections
from csi.net.response import DEFAULT_LIMITS, HttpHeaders, HttpLimits, HttpResponse, Redirect, read_body

USER_AGENT = f"csi/{__version__} (creator signal ingester)"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
CLOSED = "it closed the connection before its answer was complete"
UNRESOLVED = "name cannot be resolved"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_URL_CHARACTERS = re.compile(r"[^\x00-\x20\x7f-\x9f\u2028\u2029]+")


class Pacer(Protocol):
    """Decides when a host may be asked. `host`: `name` or `name:port`."""

    def before(self, host: str) -> None:
        """Called before each GET. Raises NetError (paced) when the host may not be asked soon."""

    def after(self, host: str, status: int, headers: Mapping[str, str], url: str) -> None:
        """Called with the status and the headers (names in lower case) of each answer to a GET of this URL."""


class Net:
    """GET and POST with limits over one pool of connections. Threads may share it; the pool opens at the first call."""

    def __init__(
        self,
        *,
        limits: HttpLimits = DEFAULT_LIMITS,
        allow_insecure_http: bool = False,
        verify: ssl.SSLContext | None = None,
        max_connections: int = 64,
        max_per_host: int = 16,
        guard: AddressGuard | None = None,
    ) -> None:
        """`guard`: an AddressGuard is for URLs that users or feeds choose. Only public addresses are reached, redirects
        may lead to other hosts, and plain http is allowed: it is how many feeds are published. ConfiguredHosts is for
        those of the configuration. Without one only metadata addresses are refused."""
        self.limits = limits
        feeds_choose = guard is not None and not isinstance(guard, ConfiguredHosts)
        self._insecure = allow_insecure_http or feeds_choose
        self.guard, self._feeds_choose = guard, feeds_choose
        self.pacer: Pacer | None = None
        self._verify = verify
        self._max_connections = max_connections
        self._slots = HostSlots(max_per_host)
        self._lock = threading.Lock()
        self._pools: Pools | None = None

    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        limits: HttpLimits | None = None,
        paced_as: str | None = None,
    ) -> HttpResponse:
        """One GET. Redirects are followed on the same host. At most `max_per_host` requests run at once to one host:
        the others wait for a slot within their own deadline. `paced_as`: the host whose pace applies, if it is not the
        URL's own."""
        limits = limits or self.limits
        target = self._check_url(url)
        paced = paced_as or host_of(target)
        if self.pacer is not None:
            self.pacer.before(paced)
        answer = self._get(target, headers, limits)
        if self.pacer is not None:
            self.pacer.after(paced, answer.status, answer.headers, url)
        return answer

    def _get(self, target: httpx.URL, headers: Mapping[str, str], limits: HttpLimits) -> HttpResponse:
        with deadline(limits.total, max_wire=limits.max_wire):
            sent = check_headers(headers)
            first, seen, redirects = host_of(target), [target], list[Redirect]()
            while True:
                if self.pacer is not None and host_of(target) != first:
                    self.pacer.before(host_of(target))
                with self._slots.hold(host_of(target), where_of(target)):
                    answer = self._read(target, sent, limits)
                if answer.status not in REDIRECTS:
                    return replace(answer, redirects=tuple(redirects))
                target = self._next_hop(answer, seen, limits)
                redirects.append(Redirect(answer.status, str(target)))
                seen.append(target)

    def post(
        self,
        url: str,
        *,
        body: bytes,
        headers: Mapping[str, str],
        limits: HttpLimits | None = None,
        method: str = "POST",
    ) -> HttpResponse:
        """One POST (or PUT, PATCH) of exactly these bytes. A redirect is returned like any other response, never
        followed."""
        limits = limits or self.limits
        with deadline(limits.total, max_wire=limits.max_wire):
            target, sent = self._check_url(url), _with_own(check_headers(headers))
            started, where = time.monotonic(), where_of(target)
            call.plain_http = target.scheme == "http"
            connect = min(limits.connect, limits.total)
            try:
                answer = self._open_pools().posting.exchange(
                    method, target, sent, body, connect=connect, limit=limits.max_body, where=where
                )
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                raise explain(error, target, limits) from None
            return HttpResponse(
                status=answer.status,
                headers=answer.headers,
                body=answer.body,
                url=f"{target.scheme}://{where}",
                elapsed=time.monotonic() - started,
                certificate_expires_at=answer.certificate_expires_at,
            )

    def close(self) -> None:
        """Close the pools. A later call opens new ones."""
        with self._lock:
            pools, self._pools = self._pools, None
        if pools is not None and pools.pid == os.getpid():
            pools.reading.close()
            pools.posting.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_url(self, text: str) -> httpx.URL:
        url = parse_url(text)
        if url.scheme == "http" and not (self._insecure or is_loopback(url.host)):
            raise NetError(
                f"{where_of(url)}: plain http is allowed for loopback addresses only; use https",
                kind="insecure",
                sent=False,
            )
        return url

    def _next_hop(self, answer: HttpResponse, seen: list[httpx.URL], limits: HttpLimits) -> httpx.URL:
        here, locations = seen[-1], answer.headers.get_list("location")
        where = where_of(here)
        if len(locations) != 1:
            raise NetError(f"{where}: a redirect without exactly one Location", kind="redirect")
        try:
            there = self._check_url(str(here.join(locations[0])))
        except (NetError, httpx.InvalidURL, ValueError):
            raise NetError(f"{where}: redirects to an address that is not allowed", kind="redirect") from None
        if here.scheme == "https" and there.scheme != "https":
            raise NetError(f"{where}: redirects from https to http", kind="redirect")
        # Another port is another service; http → https is the same host.
        if not self._feeds_choose and host_of(here) != host_of(there):
            raise NetError(f"{where}: redirects to another host ({host_of(there)[:100]})", kind="redirect")
        if len(seen) > limits.max_redirects:
            raise NetError(f"{where}: more than {limits.max_redirects} redirects", kind="redirect")
        if there in seen:
            raise NetError(f"{where}: redirects in a circle", kind="redirect")
        return there

    def _read(self, url: httpx.URL, headers: dict[str, str], limits: HttpLimits) -> HttpResponse:
        started, where = time.monotonic(), where_of(url)
        timeout = httpx.Timeout(limits.total, connect=min(limits.connect, limits.total)).as_dict()
        merged = httpx.Headers(_with_own(headers), encoding="latin-1")
        request = httpx.Request("GET", url, headers=merged, extensions={"timeout": timeout})
        call.plain_http = url.scheme == "http"
        try:
            response = self._open_pools().reading.handle_request(request)
            try:
                content = b"" if response.status_code in REDIRECTS else read_body(response, limits.max_body, where)
            finally:
                response.close()
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise explain(error, url, limits) from None
        stream = response.extensions.get("network_stream")
        return HttpResponse(
            status=response.status_code,
            headers=HttpHeaders(response.headers.multi_items()),
            body=content,
            url=f"{url.scheme}://{where}",
            elapsed=time.monotonic() - started,
            certificate_expires_at=stream.certificate_expires_at() if isinstance(stream, DeadlineStream) else None,
        )

    def _open_pools(self) -> "Pools":
        with self._lock:
            # A forked child must not share sockets with its parent: each process opens its own pools.
            if self._pools is None or self._pools.pid != os.getpid():
                tls, most = self._verify or default_tls(), self._max_connections
                reading = DeadlineTransport(tls, most, self.guard)
                self._pools = Pools(os.getpid(), reading, PostConnections(tls, most, self.guard))
            return self._pools


@dataclass(frozen=True)
class Pools:
    """The connections of one process: those that sources are read over, and those of POST."""

    pid: int
    reading: DeadlineTransport
    posting: PostConnections


def _with_own(headers: Mapping[str, str]) -> dict[str, str]:
    """The caller's headers before ours; an encoding other than gzip could not be decompressed within its cap."""
    given = {name.lower() for name in headers}
    own = {"User-Agent": USER_AGENT, "Accept": "*/*"}
    kept = {name: value for name, value in headers.items() if name.lower() != "accept-encoding"}
    return (
        {name: value for name, value in own.items() if name.lower() not in given} | kept | {"Accept-Encoding": "gzip"}
    )


def local_url(host: str, port: int) -> str:
    """Where a program on this machine reaches a server that listens on this host, which may stand for all addresses."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a URL's host is loopback: `localhost`, 127.0.0.0/8 or ::1. No name is resolved."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@functools.lru_cache(maxsize=256)  # most calls go to the same few addresses
def parse_url(text: str) -> httpx.URL:
    """The URL as httpx will use it. An error never repeats the text: it could hold a secret."""
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
        raise NetError(f"{where_of(url)}: remove user and password from the URL", kind="bad_url", sent=False)
    return url


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
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


def host_of(url: httpx.URL) -> str:
    """`host`, or `host:port` where the port is not the scheme's own."""
    return url.netloc.decode("ascii", "replace")


def where_of(url: httpx.URL) -> str:
    return host_of(url) + url.raw_path.partition(b"?")[0].decode("ascii", "replace")[:200]


@dataclass(frozen=True)
class Break:
    """Why an exchange has no complete response. `cause`: the same for operators, without any address."""

    kind: str
    words: str
    cause: str
    expires_at: float | None = None


def explain(error: Exception, url: httpx.URL, limits: HttpLimits) -> NetError:
    """A NetError for an error of httpx. The text of httpx is dropped: it may quote a URL with a key, or a header."""
    connect, total = f"{min(limits.connect, limits.total):g} s", f"{limits.total:g} s"
    match error:
        case httpx.PoolTimeout():
            words = "no free connection; too many requests at once"
            found = Break("busy", words, words)
        case httpx.ConnectTimeout():
            found = Break("timeout", f"no connection within {connect}", f"no connection within {connect}")
        case httpx.TimeoutException():
            found = Break("timeout", f"no complete response within {total}", f"no answer within {total}")
        case httpx.NetworkError():
            found = _name_break(error, url)
        case httpx.RemoteProtocolError() if str(error) == WASTEFUL:
            found = Break("protocol", WASTEFUL, "its answer has far more bytes on the wire than in its body")
        case httpx.RemoteProtocolError() if call.cut:
            found = Break("reset", "the connection closed before the response was complete", CLOSED)
        case httpx.RemoteProtocolError():
            found = Break("protocol", "the response is not valid HTTP", "its answer is not valid HTTP")
        case _:
            words = f"the exchange failed ({type(error).__name__})"
            found = Break("protocol", words, words)
    unsent = isinstance(error, httpx.PoolTimeout | httpx.ConnectTimeout | httpx.ConnectError)
    return NetError(
        f"{where_of(url)}: {found.words}",
        kind=found.kind,
        sent=not unsent,
        cause=found.cause,
        certificate_expires_at=found.expires_at,
    )


def _name_break(error: httpx.NetworkError, url: httpx.URL) -> Break:
    cause: BaseException | None = error  # the operating system's error is at the bottom of httpx's and httpcore's
    while cause is not None and not isinstance(cause, OSError | UnicodeError):
        cause = cause.__cause__ or cause.__context__  # httpcore's pool raises `from None`
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _name_certificate(cause, url)
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        words = f"no TLS connection ({cause.reason or 'handshake failed'})"
        return Break("tls", words, words)
    if not isinstance(error, httpx.ConnectError):
        return Break("reset", "the connection broke before the response was complete", CLOSED)
    if str(error) == PLAIN_TO_PUBLIC:
        words = (
            "plain http is sent to private addresses only (use https, or allow the host by net.allowed_private_hosts)"
        )
        return Break("insecure", words, words)
    if str(error) == NOT_PUBLIC:
        words = "the host is in a private network (allow it by net.allowed_private_hosts)"
        return Break("private", words, words)
    if isinstance(cause, socket.gaierror | UnicodeError):
        return Break("connect", "the host name does not resolve", UNRESOLVED)
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno in errno.errorcode:
        words = os.strerror(cause.errno)
        return Break("connect", f"cannot connect ({words})", words[:1].lower() + words[1:])
    return Break("connect", "cannot connect (the connection closed)", CLOSED)


def _name_certificate(error: ssl.SSLCertVerificationError, url: httpx.URL) -> Break:
    """In words of our own: those of OpenSSL quote the host name."""
    words, expired_at = f"the certificate is not accepted: {error.verify_message}", None
    if error.verify_code == certificate.EXPIRED:
        expired_at = certificate.read_expiry(url.host, url.port or 443)
        cause = "certificate expired" if expired_at is None else f"certificate expired on {clock.iso(expired_at)[:10]}"
    elif error.verify_code in certificate.OTHER_HOST:
        cause = "certificate is for another host name"
    elif error.verify_code in certificate.UNTRUSTED:
        cause = "certificate is not signed by an authority that this machine trusts"
    else:
        cause = "certificate is not accepted"
    return Break("tls", words, cause, expired_at)
