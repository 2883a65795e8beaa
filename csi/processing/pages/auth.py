"""Who may look: this machine, or whoever has the dashboard's password. No page changes anything."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re

from starlette.requests import Request

_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")


def may_look(request: Request, password: str | None) -> bool:
    """A foreign page that was made to call itself `localhost` is stopped by its Host header."""
    if password is not None:
        return _has_password(request, password)
    hosts = request.headers.getlist("host")
    return _from_here(request) and len(hosts) == 1 and _LOCAL.fullmatch(hosts[0].lower()) is not None


def _from_here(request: Request) -> bool:
    if request.client is None or "forwarded" in request.headers or "x-forwarded-for" in request.headers:
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _has_password(request: Request, password: str) -> bool:
    given = request.headers.getlist("authorization")
    scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    try:
        _, _, word = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        word = ""
    same = hmac.compare_digest(_digest(word), _digest(password))
    return scheme.lower() == "basic" and same


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
