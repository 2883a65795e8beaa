"""The door of the admin API: who may come in, decided before a byte of the body is read."""

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from csi.config.settings import Settings

Role = Literal["admin", "reader"]

SAFE_METHODS = ("GET", "HEAD")
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Rule:
    """What the configuration says about the door."""

    is_served: bool
    hosts: frozenset[str]
    token: str | None
    read_token: str | None


@dataclass(frozen=True)
class Refused:
    """Why somebody is not let in."""

    status: int
    detail: str


def rule_of(settings: Settings) -> Rule:
    admin, reader = settings.secrets.admin_token, settings.secrets.admin_read_token
    return Rule(
        is_served=settings.features.admin_api,
        hosts=frozenset(_bracketed(name.lower()) for name in settings.web.allowed_hosts),
        token=admin.get_secret_value() if admin else None,
        read_token=reader.get_secret_value() if reader else None,
    )


def admit(rule: Rule, method: str, headers: Headers) -> Role | Refused:
    """Where the request came from, then who sent it, then what it may do."""
    if not rule.is_served:
        return Refused(404, "the admin API is switched off (features.admin_api)")
    if host_of(headers) not in rule.hosts:
        return Refused(421, "this Host is not served here; add it to web.allowed_hosts")
    if method not in SAFE_METHODS and not is_own_site(rule, headers):
        return Refused(403, "requests from another site are refused")
    if not (rule.token or rule.read_token):
        return Refused(403, "the admin API is closed; set CSI_ADMIN_TOKEN")
    role = _role(rule, headers.getlist("authorization"))
    if role is None:
        return Refused(401, "a valid token is needed: Authorization: Bearer …")
    if role == "reader" and method not in SAFE_METHODS:
        return Refused(403, "this token may only read; use CSI_ADMIN_TOKEN")
    return role


def host_of(headers: Headers) -> str | None:
    """The one Host without its port; None where there is none, or more than one, or one that is no host."""
    values = headers.getlist("host")
    found = _HOST.fullmatch(values[0].lower()) if len(values) == 1 else None
    return found["name"] if found else None


def is_own_site(rule: Rule, headers: Headers) -> bool:
    """Not sent by a page of somebody else, as far as the browser tells."""
    if headers.get("sec-fetch-site", "").strip().lower() == "cross-site":
        return False
    return all(_origin_host(origin) in rule.hosts for origin in headers.getlist("origin"))


def _origin_host(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
        host = parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        return None
    return _bracketed(host) if host else None


def _role(rule: Rule, credentials: list[str]) -> Role | None:
    """One bearer token, given once."""
    scheme, _, given = credentials[0].partition(" ") if len(credentials) == 1 else ("", "", "")
    role = role_of(rule, given.strip(" "))
    return role if scheme.lower() == "bearer" else None


def role_of(rule: Rule, given: str) -> Role | None:
    """What this token opens. Both are compared, in time that depends on neither their text nor their length."""
    is_admin, is_reader = _same(given, rule.token), _same(given, rule.read_token)
    return "admin" if is_admin else "reader" if is_reader else None


def _same(given: str, token: str | None) -> bool:
    return hmac.compare_digest(_digest(given), _digest(token or "")) and bool(token)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _bracketed(host: str) -> str:
    """`::1` as a Host header writes it."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
