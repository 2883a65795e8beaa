"""Which URLs and headers may be sent."""

import functools
import ipaddress
import re
from collections.abc import Mapping

from csi.errors import NetError
from csi.net.httpx_import import httpx

# Headers that may follow a redirect to another (allowed) host: never a key, a token or an unknown header.
FORWARDED_HEADERS = frozenset({"accept", "accept-language", "if-modified-since", "if-none-match"})

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_URL_CHARACTERS = re.compile(r"[^\x00-\x20\x7f-\x9f\u2028\u2029]+")


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


def forwarded_headers(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() in FORWARDED_HEADERS}


def host_of(url: httpx.URL) -> str:
    """`host`, or `host:port` where the port is not the scheme's own."""
    return url.netloc.decode("ascii", "replace")


def where_of(url: httpx.URL) -> str:
    return host_of(url) + url.raw_path.partition(b"?")[0].decode("ascii", "replace")[:200]


def same_host(here: httpx.URL, there: httpx.URL) -> bool:
    """The same host and port: another port is another service. http → https on one host is the same host."""
    return host_of(here) == host_of(there)
