"""How a request is signed and checked: `<timestamp>.<request_id>.<canonical JSON>` under HMAC-SHA256 (PRD §8.1)."""

import base64
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["ascii", "utf8"]

REQUEST_ID = re.compile(r"[A-Za-z0-9_]{1,64}")
TOLERANCE_SECONDS = 300
_HEADER = re.compile(r"sha256=([0-9a-f]{64})")


def canonical(body: Any, form: Form = "ascii") -> bytes:
    """The bytes that are signed and the bytes that are sent: one and the same.

    `ascii` is the PRD's locked form. `utf8` is what receivers that verify with `ensure_ascii=False` need.
    NaN and infinities are refused: they are not JSON, and every parser reads them differently.
    """
    text = json.dumps(body, separators=(",", ":"), sort_keys=True, ensure_ascii=form == "ascii", allow_nan=False)
    return text.encode("utf-8")


def sign(secret: str, timestamp: str, request_id: str, body: bytes) -> str:
    """The hex digest that goes behind `sha256=`."""
    message = f"{timestamp}.{request_id}.".encode() + body
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


def headers(secret: str, body: bytes, *, now: float, request_id: str | None = None) -> dict[str, str]:
    """The three X-CSI headers of one attempt. Every attempt gets its own id, timestamp and signature."""
    timestamp, request = str(int(now)), request_id or new_request_id()
    return {
        "X-CSI-Signature": f"sha256={sign(secret, timestamp, request, body)}",
        "X-CSI-Timestamp": timestamp,
        "X-CSI-Request-ID": request,
    }


def webhook_headers(secret: str, body: bytes, *, message_id: str, now: float) -> dict[str, str]:
    """The same body signed once more, as Standard Webhooks does it. The id is the batch's, the same in each attempt.

    Its receivers hold the secret as `whsec_` + base64 of our secret's bytes.
    """
    timestamp = str(int(now))
    message = f"{message_id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(secret.encode(), message, hashlib.sha256).digest()).decode()
    return {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{digest}"}


@dataclass(frozen=True)
class ValidSignature:
    """The request is from somebody who holds a secret; `form` is what its signature covers."""

    form: Form


@dataclass(frozen=True)
class InvalidSignature:
    """The request is not to be believed. `reason` is one word, safe to send back and to log."""

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
    """Check one request against every secret that is valid now, in both canonical forms.

    The body is signed as it was received; a body that was re-encoded on its way is given a second chance
    in each canonical form, since what it says is the same.
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
    for form, candidate in _candidates(body):
        for secret in accepted_secrets:
            expected = sign(secret, timestamp, request_id, candidate)
            if hmac.compare_digest(expected, match[1]):
                return ValidSignature(form)
    return InvalidSignature("bad_signature")


def _candidates(body: bytes) -> list[tuple[Form, bytes]]:
    received: Form = "ascii" if body.isascii() else "utf8"
    forms: list[tuple[Form, bytes]] = [(received, body)]
    try:
        parsed = json.loads(body)
        forms += [("ascii", canonical(parsed, "ascii")), ("utf8", canonical(parsed, "utf8"))]
    except (ValueError, RecursionError):
        pass  # not JSON we would write: only the bytes as received can match
    return [pair for index, pair in enumerate(forms) if pair[1] not in [b for _, b in forms[:index]]]
