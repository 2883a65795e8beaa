"""Who may read the dashboard: clients on this machine, or clients with the dashboard's password."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re

from starlette.requests import Request

_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")


def is_authorized(request: Request, password: str | None) -> bool:
    return _is_local(request) if password is None else _has_password(request, password)


def _is_local(request: Request) -> bool:
    """The Host header is checked against DNS rebinding: a foreign page whose name resolves to this machine."""
    hosts = request.headers.getlist("host")
    if request.client is None or "forwarded" in request.headers or "x-forwarded-for" in request.headers:
        return False
    try:
        loopback = ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False
    return loopback and len(hosts) == 1 and _LOCAL.fullmatch(hosts[0].lower()) is not None


def _has_password(request: Request, password: str) -> bool:
    given = request.headers.getlist("authorization")
    scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    try:
        _, _, word = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        word = ""
    # Hashes have one length, so the comparison takes the same time for every password.
    same = hmac.compare_digest(_digest(word), _digest(password))
    return scheme.lower() == "basic" and same


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
