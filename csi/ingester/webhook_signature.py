"""Verify pushes and webhooks that others send: Standard Webhooks, Composio, and the hub signature of WebSub.

The raw bytes are verified before they are parsed, in constant time, with each accepted secret.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from csi.ingester.signature import TOLERANCE_SECONDS

Refusal = Literal["no_signature", "malformed_id", "malformed_timestamp", "stale_timestamp", "bad_signature"]

LONGEST_ID = 200
_HUB_DIGESTS = {"sha1": hashlib.sha1, "sha256": hashlib.sha256, "sha384": hashlib.sha384, "sha512": hashlib.sha512}


class InboundKeys:
    """Tokens and secrets of senders, derived from one key: the database stores none of them, only their generation."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    @property
    def fingerprint(self) -> str:
        """Changes with the key, and says nothing about it."""
        return self._derive("fingerprint").hex()[:16]

    def token(self, name: str, generation: int) -> str:
        """The last part of the sender's address."""
        return self._derive(f"token {generation} {name}").hex()[:40]

    def secret(self, name: str, generation: int) -> bytes:
        return self._derive(f"secret {generation} {name}")

    def hub_secret(self, name: str, generation: int) -> str:
        """The secret that a hub gets: text, and the same over renewals."""
        return self.secret(name, generation).hex()

    def _derive(self, purpose: str) -> bytes:
        return hmac.digest(self._key, purpose.encode(), "sha256")


def as_whsec(secret: bytes) -> str:
    """The form in which libraries of Standard Webhooks take a secret."""
    return f"whsec_{base64.b64encode(secret).decode()}"


def webhook_key(text: str) -> bytes:
    """The bytes of a secret: of `whsec_…` the decoded ones, of any other text its own."""
    if not text.startswith("whsec_"):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        return text.encode()


@dataclass(frozen=True)
class SignedMessage:
    """The headers of Standard Webhooks, which Composio uses, too."""

    id: str
    timestamp: str
    signatures: str

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "SignedMessage":
        return cls(
            headers.get("webhook-id", ""), headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "")
        )


def sign_webhook(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one message."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{_webhook_digest(key, message_id, str(timestamp), body)}",
    }


def check_webhook(keys: Sequence[bytes], message: SignedMessage, body: bytes, now: float) -> Refusal | None:
    """Why the message is refused. None: one of the keys signed it, and lately."""
    if not message.signatures:
        return "no_signature"
    if not 0 < len(message.id) <= LONGEST_ID or not message.id.isascii() or not message.id.isprintable():
        return "malformed_id"
    stamp = message.timestamp
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        return "malformed_timestamp"
    given = [part.partition(",") for part in message.signatures.split(" ")[:20]]
    matches = False
    for key in keys:
        expected = _webhook_digest(key, message.id, stamp, body).encode()
        for version, _, digest in given:
            matches |= version == "v1" and hmac.compare_digest(expected, digest.encode("utf-8", "replace"))
    if not matches:
        return "bad_signature"
    return "stale_timestamp" if abs(now - int(stamp)) > TOLERANCE_SECONDS else None


def sign_hub(secret: str, body: bytes, method: str = "sha1") -> str:
    """The value of X-Hub-Signature."""
    return f"{method}={hmac.new(secret.encode(), body, _HUB_DIGESTS[method]).hexdigest()}"


def check_hub(secrets: Sequence[str], header: str, body: bytes) -> Refusal | None:
    method, _, digest = header.partition("=")
    if not digest:
        return "no_signature"
    if method not in _HUB_DIGESTS:
        return "bad_signature"
    given = f"{method}={digest.lower()}".encode("utf-8", "replace")
    matches = [hmac.compare_digest(sign_hub(secret, body, method).encode(), given) for secret in secrets]
    return None if any(matches) else "bad_signature"


def _webhook_digest(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    return base64.b64encode(hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")).decode()
