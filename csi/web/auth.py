"""Who may use the admin API and the dashboard: checks of Host, origin, token and session. Pure."""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from csi.config.settings import Settings
from csi.web.responses import HttpProblem

Role = Literal["admin", "reader"]
Color = Literal["good", "bad"]

SAFE_METHODS = ("GET", "HEAD")
SESSION_COOKIE, MESSAGE_COOKIE = "csi_session", "csi_note"
SESSION_SECONDS = 12 * 3600
MESSAGE_SECONDS = 60
LONGEST_MESSAGE = 600
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True)
class AccessRules:
    """The part of the configuration that decides who has access."""

    serves_api: bool
    hosts: frozenset[str]
    token: str | None
    read_token: str | None
    feed_token: str | None = None


def access_rules(settings: Settings) -> AccessRules:
    admin, reader = settings.secrets.admin_token, settings.secrets.admin_read_token
    feeds = settings.secrets.feed_token
    return AccessRules(
        serves_api=settings.features.admin_api,
        hosts=frozenset(_bracketed(name.lower()) for name in settings.web.allowed_hosts),
        token=admin.get_secret_value() if admin else None,
        read_token=reader.get_secret_value() if reader else None,
        feed_token=feeds.get_secret_value() if feeds else None,
    )


def authorize_api_request(
    rules: AccessRules, method: str, headers: Headers, *, reader_methods: Collection[str] = SAFE_METHODS
) -> Role:  # fmt: skip
    """Checks the origin of a request, then its token, then what the token allows. HttpProblem where one fails.

    `reader_methods`: what the read-only token may use.
    """
    if not rules.serves_api:
        raise HttpProblem(404, "the admin API is switched off (features.admin_api)")
    check_origin(rules, method, headers)
    if not (rules.token or rules.read_token):
        raise HttpProblem(403, "the admin API needs a token: set CSI_ADMIN_TOKEN")
    credentials = headers.getlist("authorization")
    scheme, _, given = credentials[0].partition(" ") if len(credentials) == 1 else ("", "", "")
    role = role_of(rules, given.strip(" "))
    if role is None or scheme.lower() != "bearer":
        raise HttpProblem(401, "a valid token is required: Authorization: Bearer …")
    if role == "reader" and method not in reader_methods:
        raise HttpProblem(403, "this token is read-only; use CSI_ADMIN_TOKEN")
    return role


def check_origin(rules: AccessRules, method: str, headers: Headers) -> None:
    """HttpProblem for a Host that is not configured, and for a change that the page of another site sent."""
    if host_of(headers) not in rules.hosts:
        raise HttpProblem(421, "this Host is not served here; add it to web.allowed_hosts")
    if method in SAFE_METHODS:
        return
    is_cross_site = headers.get("sec-fetch-site", "").strip().lower() == "cross-site"
    if is_cross_site or any(_origin_host(origin) not in rules.hosts for origin in headers.getlist("origin")):
        raise HttpProblem(403, "requests from another site are refused")


def host_of(headers: Headers) -> str | None:
    """The Host without its port; None without a Host, with several, and with an invalid one."""
    values = headers.getlist("host")
    found = _HOST.fullmatch(values[0].lower()) if len(values) == 1 else None
    return found["name"] if found and int(found["port"] or 0) < 65_536 else None


def _origin_host(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
        host = parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        return None
    return _bracketed(host) if host else None


def role_of(rules: AccessRules, given: str) -> Role | None:
    """Both tokens are compared, in a time that depends neither on their text nor on their length."""
    is_admin, is_reader = _is_same(given, rules.token), _is_same(given, rules.read_token)
    return "admin" if is_admin else "reader" if is_reader else None


def is_feed_token(rules: AccessRules, given: str) -> bool:
    """Whether the token opens the feeds from a path: the feeds' own, or the one that may only read."""
    is_feeds, is_reader = _is_same(given, rules.feed_token), _is_same(given, rules.read_token)
    return is_feeds or is_reader


def _is_same(given: str, token: str | None) -> bool:
    return hmac.compare_digest(_digest(given), _digest(token or "")) and bool(token)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _bracketed(host: str) -> str:
    """`::1` as a Host header writes it: `[::1]`."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


# ── sessions of the dashboard: a signed cookie, a token for every form, a message for the next page ─────


@dataclass(frozen=True)
class Session:
    """A browser that presented a valid token."""

    role: Role
    number: str
    until: float


@dataclass(frozen=True)
class FlashMessage:
    """The result of the last change, shown once on the next page."""

    color: Color
    text: str


def signing_key(rules: AccessRules) -> bytes:
    """Derived from the tokens: changing one ends every session."""
    return hashlib.sha256(f"csi dashboard\n{rules.token or ''}\n{rules.read_token or ''}".encode()).digest()


def new_session(role: Role, now: float) -> Session:
    return Session(role, secrets.token_hex(12), now + SESSION_SECONDS)


def cookie_of(session: Session, key: bytes) -> str:
    text = f"{session.role}.{session.number}.{int(session.until)}"
    return f"{text}.{_sign(key, 'session', text)}"


def read_cookie(cookie: str, key: bytes, now: float) -> Session | None:
    """None for a cookie that is not ours, was changed, or expired."""
    text = _signed_text(cookie[:300], key, "session")
    if text is None:
        return None
    try:
        role, number, until = text.split(".")
        session = Session("admin" if role == "admin" else "reader", number, float(until))
    except ValueError:
        return None
    return session if now < session.until <= now + SESSION_SECONDS + 60 else None


def form_token(session: Session, key: bytes) -> str:
    return _sign(key, "form", session.number)


def is_form_token(given: str, session: Session, key: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), form_token(session, key).encode())


def message_cookie(message: FlashMessage, key: bytes) -> str:
    content = json.dumps([message.color, message.text[:LONGEST_MESSAGE]])
    text = base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
    return f"{text}.{_sign(key, 'note', text)}"


def read_message(cookie: str, key: bytes) -> FlashMessage | None:
    text = _signed_text(cookie[:5_000], key, "note")
    if text is None:
        return None
    try:
        color, content = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError, RecursionError, binascii.Error):
        return None
    return FlashMessage("good" if color == "good" else "bad", str(content))


def _signed_text(cookie: str, key: bytes, purpose: str) -> str | None:
    text, _, signature = cookie.rpartition(".")
    return text if hmac.compare_digest(signature.encode(), _sign(key, purpose, text).encode()) else None


def _sign(key: bytes, purpose: str, text: str) -> str:
    return hmac.new(key, f"{purpose}\n{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
