"""Queue messages that no worker wrote: pickles that create a file when they are opened, and JSON with a wrong key."""

import hashlib
import hmac
import pickle
from pathlib import Path

from huey.registry import Message
from huey.serializer import SignedSerializer

from tasks.serializer import PREFIX, JsonSerializer

TASK = "tasks.poll.poll_watch"


class Trap:
    """Opening the pickle of this object creates the file."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __reduce__(self):
        return open, (self.file, "w")


def forged_messages(file: Path, *, queue: str = "csi") -> list[bytes]:
    """Without a key, with the constant key of version 1.0.0, and with a key of the forger's."""
    return [pickle.dumps(Trap(file)), *pickles_of_1_0(file, queue=queue), *_json_messages(queue)]


def pickles_of_1_0(file: Path, *, queue: str = "csi") -> list[bytes]:
    """Signed as version 1.0.0 signed: with its key for an installation without secrets, and with another one."""
    return [
        SignedSerializer(
            secret=hmac.new(secret, b"csi queue messages", hashlib.sha256).hexdigest(), salt=queue
        ).serialize(Trap(file))
        for secret in (b"unconfigured", b"the-forgers-own-key")
    ]


def _json_messages(queue: str) -> list[bytes]:
    message = Message(id="forged", name=TASK, args=(1,), kwargs={})
    signed = [
        JsonSerializer(secret, queue).serialize(message) for secret in ("unconfigured", "", "the-forgers-own-key")
    ]
    body = signed[0].split(b":", 2)[2]
    return [*signed, body, PREFIX + body, PREFIX + b"0" * 64 + b":" + body, PREFIX + b":" + body, b""]
