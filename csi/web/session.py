"""Who sits at the dashboard: a signed cookie after the token was typed once, and a token in every form. Pure."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Literal

from csi.web.auth import Role, Rule

COOKIE, NOTE_COOKIE = "csi_session", "csi_note"
SESSION_SECONDS = 12 * 3600
NOTE_SECONDS = 60
LONGEST_NOTE = 600

Mood = Literal["good", "bad"]


@dataclass(frozen=True)
class Session:
    """Somebody who knew a token."""

    role: Role
    number: str
    until: float


@dataclass(frozen=True)
class Note:
    """What came of the last act, told on the next page."""

    mood: Mood
    text: str


def key_of(rule: Rule) -> bytes:
    """Comes from the tokens themselves: who changes one ends every session."""
    return hashlib.sha256(f"csi dashboard\n{rule.token or ''}\n{rule.read_token or ''}".encode()).digest()


def new_session(role: Role, now: float) -> Session:
    return Session(role, secrets.token_hex(12), now + SESSION_SECONDS)


def seal(session: Session, key: bytes) -> str:
    text = f"{session.role}.{session.number}.{int(session.until)}"
    return f"{text}.{_sign(key, 'session', text)}"


def unseal(cookie: str, key: bytes, now: float) -> Session | None:
    """None: not ours, changed, or too old."""
    text, _, signature = cookie[:300].rpartition(".")
    if not hmac.compare_digest(signature.encode(), _sign(key, "session", text).encode()):
        return None
    role, number, until = text.split(".")
    session = Session("admin" if role == "admin" else "reader", number, float(until))
    return session if now < session.until <= now + SESSION_SECONDS + 60 else None


def form_token(session: Session, key: bytes) -> str:
    return _sign(key, "form", session.number)


def is_form_token(given: str, session: Session, key: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), form_token(session, key).encode())


def seal_note(note: Note, key: bytes) -> str:
    text = base64.urlsafe_b64encode(json.dumps([note.mood, note.text[:LONGEST_NOTE]]).encode()).decode().rstrip("=")
    return f"{text}.{_sign(key, 'note', text)}"


def unseal_note(cookie: str, key: bytes) -> Note | None:
    text, _, signature = cookie[:5_000].rpartition(".")
    if not hmac.compare_digest(signature.encode(), _sign(key, "note", text).encode()):
        return None
    try:
        mood, said = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error):
        return None
    return Note("good" if mood == "good" else "bad", str(said))


def _sign(key: bytes, purpose: str, text: str) -> str:
    return hmac.new(key, f"{purpose}\n{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
