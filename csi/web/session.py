"""Dashboard sessions: a signed cookie, a token for every form, and a message for the next page. Pure."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Literal

from csi.web.auth import AccessRules, Role

COOKIE, MESSAGE_COOKIE = "csi_session", "csi_note"
SESSION_SECONDS = 12 * 3600
MESSAGE_SECONDS = 60
LONGEST_MESSAGE = 600

Mood = Literal["good", "bad"]


@dataclass(frozen=True)
class Session:
    """A browser that presented a valid token."""

    role: Role
    number: str
    until: float


@dataclass(frozen=True)
class FlashMessage:
    """The result of the last change, shown once on the next page."""

    mood: Mood
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
    role, number, until = text.split(".")
    session = Session("admin" if role == "admin" else "reader", number, float(until))
    return session if now < session.until <= now + SESSION_SECONDS + 60 else None


def form_token(session: Session, key: bytes) -> str:
    return _sign(key, "form", session.number)


def is_form_token(given: str, session: Session, key: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), form_token(session, key).encode())


def message_cookie(message: FlashMessage, key: bytes) -> str:
    content = json.dumps([message.mood, message.text[:LONGEST_MESSAGE]])
    text = base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
    return f"{text}.{_sign(key, 'note', text)}"


def read_message(cookie: str, key: bytes) -> FlashMessage | None:
    text = _signed_text(cookie[:5_000], key, "note")
    if text is None:
        return None
    try:
        mood, content = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error):
        return None
    return FlashMessage("good" if mood == "good" else "bad", str(content))


def _signed_text(cookie: str, key: bytes, purpose: str) -> str | None:
    text, _, signature = cookie.rpartition(".")
    return text if hmac.compare_digest(signature.encode(), _sign(key, purpose, text).encode()) else None


def _sign(key: bytes, purpose: str, text: str) -> str:
    return hmac.new(key, f"{purpose}\n{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
