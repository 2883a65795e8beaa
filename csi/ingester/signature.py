"""Sign and verify requests: HMAC-SHA256 of `<timestamp>.<request_id>.<canonical JSON>` (PRD §8.1)."""

import base64
import hashlib
import hmac
import json
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["ascii", "utf8"]

REQUEST_ID = re.compile(r"[A-Za-z0-9_]{1,64}")
TOLERANCE_SECONDS = 300
_HEADER = re.compile(r"sha256=([0-9a-f]{64})")


def canonical(body: Any, form: Form = "ascii") -> bytes:
    """The bytes of the body, which are both signed and sent.

    `ascii` is the form of the PRD. `utf8` is for receivers that serialize the parsed body with `ensure_ascii=False`
    before they verify it. # decision 0002
    Raises ValueError for NaN and infinities: they are not JSON, and parsers read them differently.
    """
    text = json.dumps(body, separators=(",", ":"), sort_keys=True, ensure_ascii=form == "ascii", allow_nan=False)
    return text.encode("utf-8")


def sign(secret: str | bytes, timestamp: str, request_id: str, body: bytes) -> str:
    """The hex digest that follows `sha256=` in the header."""
    message = f"{timestamp}.{request_id}.".encode() + body
    return hmac.new(_key(secret), message, hashlib.sha256).hexdigest()


def _key(secret: str | bytes) -> bytes:
    """A secret as text signs with its own bytes."""
    return secret.encode() if isinstance(secret, str) else secret


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


def headers(secret: str | bytes, body: bytes, *, now: float, request_id: str | None = None) -> dict[str, str]:
    """The three X-CSI headers of one attempt. Every attempt gets its own id, timestamp and signature."""
    timestamp, request = str(int(now)), request_id or new_request_id()
    return {
        "X-CSI-Signature": f"sha256={sign(secret, timestamp, request, body)}",
        "X-CSI-Timestamp": timestamp,
        "X-CSI-Request-ID": request,
    }


def webhook_headers(secret: str | bytes, body: bytes, *, message_id: str, now: float) -> dict[str, str]:
    """The headers of Standard Webhooks for the same body. The id is that of the batch, or of its only event where a
    request has one; it is the same in each attempt.

    A receiver of Standard Webhooks uses `whsec_` + base64 of the secret's bytes as its secret.
    """
    timestamp = str(int(now))
    message = f"{message_id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(_key(secret), message, hashlib.sha256).digest()).decode()
    return {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{digest}"}


@dataclass(frozen=True)
class ValidSignature:
    """The request was signed with an accepted secret; `form` is the form of the JSON that was signed."""

    form: Form


@dataclass(frozen=True)
class InvalidSignature:
    """The signature does not verify. `reason` is one word that can be logged and sent back."""

    reason: str


def verify(
    accepted_secrets: list[str],
    *,
    signature: str,
    timestamp: str,
    request_id: str,
    body: bytes,
    now: float,
    tolerance: float = TOLERANCE_SECONDS,
) -> ValidSignature | InvalidSignature:
    """Verify a request with each accepted secret.

    The bytes as received are tried first, then both canonical forms of the parsed body: a proxy or framework may have
    re-encoded the JSON without changing its content.
    """
    match = _HEADER.fullmatch(signature)
    if match is None:
        return InvalidSignature("malformed_signature")
    if REQUEST_ID.fullmatch(request_id) is None:
        return InvalidSignature("malformed_request_id")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return InvalidSignature("malformed_timestamp")
    if abs(now - int(timestamp)) > tolerance:
        return InvalidSignature("stale_timestamp")
    candidates: dict[bytes, Form] = {body: "ascii" if body.isascii() else "utf8"}  # in this order, equal bytes once
    with suppress(ValueError, RecursionError):  # not JSON that CSI sends: only the bytes as received can match
        parsed = json.loads(body)
        ascii_form, utf8_form = canonical(parsed, "ascii"), canonical(parsed, "utf8")
        candidates.setdefault(ascii_form, "ascii")
        candidates.setdefault(utf8_form, "utf8")
    for candidate, form in candidates.items():
        for secret in accepted_secrets:
            expected = sign(secret, timestamp, request_id, candidate)
            if hmac.compare_digest(expected, match[1]):
                return ValidSignature(form)
    return InvalidSignature("bad_signature")
