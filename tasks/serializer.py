"""Queue messages: compact JSON, signed with HMAC-SHA256. Nothing in this project opens a pickle (decision 0038)."""

import hashlib
import hmac
import json
import re
from datetime import UTC, datetime

from huey.registry import Message

PREFIX = b"csi2:"
"""The format of a message: this prefix, the signature in hexadecimal, a colon, and the JSON object."""

_SIGNATURE_END = len(PREFIX) + 64
_TIMES = ("eta", "expires", "expires_resolved")
_NOT_SENT = ("on_complete", "on_error", "chord_config")
_FIELDS = tuple(name for name in Message._fields if name not in _NOT_SENT)
_REQUIRED = {"id": str, "name": str, "args": list, "kwargs": dict}
_SIGNED_PICKLE = re.compile(rb"\x80.*:[0-9a-f]{40}", re.DOTALL)


class UnreadableMessage(ValueError):
    """A message that the key of this queue did not sign, or that is no task."""


class JsonSerializer:
    """Huey's serializer for one queue. It is no subclass of Huey's own, which opens pickles."""

    def __init__(self, secret: str, queue: str) -> None:
        # The name of the queue is part of the key: a message of one queue cannot be moved to another.
        self._key = hmac.digest(secret.encode(), f"queue messages of {queue}".encode(), "sha256")

    def serialize(self, message: Message) -> bytes:
        """TypeError or ValueError where an argument is not plain JSON; pipelines and chords are not supported."""
        if any(getattr(message, name) is not None for name in _NOT_SENT):
            raise TypeError("a message carries one task; pipelines, error handlers and chords are not supported")
        fields = {name: value for name in _FIELDS if (value := getattr(message, name)) is not None}
        moments = {name: at for name in _TIMES if isinstance(at := fields.get(name), datetime)}
        # Huey's times are naive and mean UTC; the message states the zone.
        times = {name: (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat() for name, at in moments.items()}
        body = json.dumps(fields | times, allow_nan=False, separators=(",", ":")).encode()
        return PREFIX + self._signature(body) + b":" + body

    def deserialize(self, data: bytes) -> Message:
        """Nothing of the message is parsed before its signature is known to be ours."""
        if not isinstance(data, bytes):  # SQLite keeps any type; bytes() of a number takes that much memory
            raise UnreadableMessage("the message is not a string of bytes")
        body = data[_SIGNATURE_END + 1 :]
        signed = PREFIX + self._signature(body) + b":"
        if not hmac.compare_digest(data[: _SIGNATURE_END + 1], signed):
            raise UnreadableMessage("the key of this queue did not sign the message")
        try:
            fields = json.loads(body)
            if not isinstance(fields, dict) or not fields.keys() <= set(_FIELDS):
                raise TypeError("expected an object with the fields of a task")
            for name, kind in _REQUIRED.items():
                if not isinstance(fields.get(name), kind):
                    raise TypeError(f"{name} is absent or of another type")
            times = {name: _utc(fields[name]) for name in _TIMES if isinstance(fields.get(name), str)}
            return Message(**fields | times | {"args": tuple(fields["args"])})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UnreadableMessage(f"the message is no task: {error}") from error

    def _signature(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).hexdigest().encode()


def is_from_1_0(data: bytes) -> bool:
    """Whether version 1.0.0 wrote this message: a pickle, a colon, and a SHA-1 signature. It is not opened."""
    return isinstance(data, bytes) and _SIGNED_PICKLE.fullmatch(data) is not None


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time has no zone")
    return moment.astimezone(UTC).replace(tzinfo=None)  # Huey compares with a naive time in UTC
