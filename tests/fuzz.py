"""A mutator over inputs from outside: `python -m tests.fuzz --seconds 600 --seed 7` prints executions and findings.

An input of a finding is saved in tests/data/fuzz with `--save`, and is an input of every later run.
"""

import argparse
import contextlib
import hashlib
import hmac
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.cookies import SimpleCookie
from pathlib import Path

from huey.api import Huey
from huey.exceptions import HueyException
from huey.storage import MemoryStorage
from starlette.requests import Request

from csi.adapters import composio
from csi.adapters.feed_document import read_feed
from csi.adapters.youtube import push_document
from csi.adapters.youtube.api_errors import api_json
from csi.admin.channel_lists import read_list
from csi.config.yaml_reader import parse_yaml
from csi.errors import CsiError
from csi.ingester import webhook_signature
from csi.ingester.webhook_signature import SignedMessage
from csi.local_login import LocalLogin
from csi.net.response import HttpHeaders, HttpResponse
from csi.pipeline import inbound_content
from csi.receiver.batch import read_batch
from csi.web import auth
from tasks.serializer import PREFIX, JsonSerializer, UnreadableMessage
from tests.fakes.youtube_feed import entry, feed

ROOT = Path(__file__).resolve().parents[1]
FEEDS = ROOT / "tests/data/feeds"
SAMPLES = ROOT / "tests/data/fuzz"
DEEP = 100_000
PIECES = [
    b"\0",
    b"\xff\xfe",
    b"]]>",
    b"<!DOCTYPE x [",
    b"&a;",
    b"{",
    b"[" * 200,
    b"[" * 900 + b"]" * 900,
    b"[" * DEEP,
    b"null",
    b"1e999",
    b"-1",
    b"9" * 25,
    b"9" * 5000,
    b'"',
    b"\n",
    b"!!x ",
    b'"\\ud800"',
    "\u0661".encode(),
    b"0001-01-01T00:00:00+23:59",
    b"9999-12-31T23:59:59-23:59",
]
NOW = 1_771_761_600.0
EVENT = {"event_id": "e", "dedupe_key": "k", "source": "s", "event_type": "t", "occurred_at": "2026-01-01T00:00:00Z"}
BATCH = {"csi_version": "1.0", "csi_instance_id": "i", "batch_id": "b", "events": [EVENT]}
ITEMS = {"watch": "w", "items": [{"event_type": "t", "occurred_at": "2026-01-01T00:00:00Z", "payload": {"a": 1}}]}
TRIGGER = {"type": "t", "metadata": {"trigger_slug": "s"}, "data": {"playlist_id": "PL", "item": {"id": "x"}}}
OPML = b'<opml version="1.0"><body><outline text="a" xmlUrl="https://a.example/feed"/></body></opml>'
KEY = b"a key of this run"

# ── queue messages ──────────────────────────────────────────────────────────────────────────────────────

QUEUE = JsonSerializer("fuzz-secret", "fuzz")
_HUEY = Huey("fuzz", storage_class=MemoryStorage, serializer=QUEUE, results=False)


@_HUEY.task(retries=2, retry_delay=20, priority=50)
def _task(*_: object, **__: object) -> None:
    """What a message of the queue may name."""


_MESSAGES = [
    _HUEY.serialize_task(_task.s(1)),
    _HUEY.serialize_task(_task.s("default/urgent", other=None, eta=datetime(2026, 2, 22, tzinfo=UTC))),
]
_BODIES = [data.split(b":", 2)[2] for data in _MESSAGES]


def _read_message(data: bytes) -> None:
    """HueyException: no task has this name."""
    with contextlib.suppress(UnreadableMessage, HueyException):
        _HUEY.deserialize_task(data)


def _read_signed(body: bytes) -> None:
    """The key of the queue signs whatever it is: the parser behind the signature reads it."""
    key = hmac.digest(b"fuzz-secret", b"queue messages of fuzz", "sha256")
    signed = PREFIX + hmac.new(key, body, hashlib.sha256).hexdigest().encode() + b":" + body
    _read_message(signed)


# ── cookies ─────────────────────────────────────────────────────────────────────────────────────────────

_LOGIN_COOKIE = auth.cookie_of(auth.Session("admin", "a1b2c3", NOW + 3600), KEY)
_NOTE_COOKIE = auth.message_cookie(auth.FlashMessage("good", "done: 3 events"), KEY)


def _read_cookies(data: bytes) -> None:
    """A Cookie header, as the dashboard reads it; what is not signed by us opens nothing."""
    request = Request({"type": "http", "headers": [(b"cookie", data)]})
    session = auth.read_cookie(request.cookies.get(auth.SESSION_COOKIE, ""), KEY, NOW)
    assert session is None or session.number == "a1b2c3", "a session that was never opened"
    auth.read_message(request.cookies.get(auth.MESSAGE_COOKIE, ""), KEY)
    assert not _LOGIN.is_signed_in(request.cookies.get("csi_local", "")), "a cookie that was never given"
    with contextlib.suppress(Exception):  # the standard library's parser may refuse what ours reads
        SimpleCookie(data.decode("latin-1"))


def _read_signed_cookies(data: bytes) -> None:
    """The text of a cookie, signed with our key: the parsers behind the signature read it."""
    text = data.decode("latin-1")
    for purpose, read in (("session", lambda one: auth.read_cookie(one, KEY, NOW)), ("note", _read_note)):
        signature = hmac.new(KEY, f"{purpose}\n{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        read(f"{text}.{signature}")


def _read_note(cookie: str) -> object:
    return auth.read_message(cookie, KEY)


_LOGIN = LocalLogin(Path("does-not-exist"))


# ── webhooks ────────────────────────────────────────────────────────────────────────────────────────────


def _check_webhook(data: bytes) -> None:
    """Three lines: id, time, signature. None of them is signed with our key."""
    lines = [*data.decode("latin-1").split("\n"), "", "", ""]
    message = SignedMessage(lines[0], lines[1], lines[2])
    assert webhook_signature.check_webhook([KEY], message, b"{}", NOW) is not None, "accepted without a signature"
    assert webhook_signature.check_hub(["secret"], lines[2], b"{}") is not None, "accepted without a signature"


@dataclass(frozen=True)
class Target:
    """A parser, and good inputs of it that are mutated."""

    samples: Sequence[bytes]
    read: Callable[[bytes], object]


def _json(*documents: object) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


TARGETS = {
    "feed": Target(
        [
            feed(entry("vvvvvvvvvvv")),
            *(path.read_bytes() for path in sorted((ROOT / "tests/data/feeds").glob("*.xml"))),
        ],
        lambda data: read_feed(data, "application/xml", "https://a.example/f"),
    ),
    "api": Target(
        [b'{"items": [{"id": "a"}]}', (ROOT / "tests/data/api/two_pages.json").read_bytes()[:4000]],
        lambda data: api_json(HttpResponse(200, HttpHeaders(), data, "http://x")),
    ),
    "receiver": Target(_json(BATCH), lambda data: read_batch(data, frozenset())),
    "config": Target(
        [(ROOT / "config/config.example.yaml").read_bytes()[:3000]],
        lambda data: parse_yaml(data.decode("utf-8", "replace")),
    ),
    "opml": Target([OPML, b"Channel Id,Channel Url\nUCx,https://y,name\n"], read_list),
    "queue": Target(_MESSAGES, _read_message),
    "queue_signed": Target(_BODIES, _read_signed),
    "cookies": Target([f"csi_session={_LOGIN_COOKIE}; csi_note={_NOTE_COOKIE}; csi_local=x".encode()], _read_cookies),
    "cookies_signed": Target(
        [_LOGIN_COOKIE.rpartition(".")[0].encode(), _NOTE_COOKIE.rpartition(".")[0].encode()], _read_signed_cookies
    ),
    "webhook": Target([f"msg_1\n{NOW:.0f}\nv1,{'A' * 43}=".encode()], _check_webhook),
    "pushed_events": Target(_json([EVENT], {"events": [EVENT]}), inbound_content.read_events),
    "pushed_items": Target(_json(ITEMS), lambda data: inbound_content.read_items(data, "feed")),
    "composio": Target(_json(TRIGGER), composio.read),
    "websub": Target([feed(entry("vvvvvvvvvvv"))], lambda data: push_document.read(data, NOW)),
}


def mutated(sample: bytes, rng: random.Random) -> bytes:
    data = bytearray(sample)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at:at] = rng.choice(PIECES)
            case 1:
                del data[at : at + rng.randint(1, 40)]
            case 2:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case _:
                data[at:at] = data[at : at + rng.randint(1, 200)]
    return bytes(data)


def saved_samples(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(SAMPLES.glob(f"{name}-*"))]


@dataclass(frozen=True)
class Finding:
    """An error that is none of ours."""

    target: str
    error: str
    data: bytes

    def __str__(self) -> str:
        shown = f"{self.data[:400]!r}{' …' if len(self.data) > 400 else ''}"
        return f"{self.target}: {self.error} for {len(self.data)} bytes: {shown}"


@dataclass
class Result:
    """What a run found. Executions count by target."""

    executions: Counter[str]
    findings: list[Finding]


def run(seconds: float, seed: int, targets: Sequence[str] = ()) -> Result:
    """The inputs of earlier findings once, then mutations of the samples in turn, until the time is over."""
    rng, ends = random.Random(seed), time.monotonic() + seconds
    chosen = {name: TARGETS[name] for name in targets or TARGETS}
    result = Result(Counter(), [])
    for name, target in chosen.items():
        for data in [*target.samples, *saved_samples(name)]:
            _try(name, target, data, result)
    while time.monotonic() < ends and len(result.findings) < 20:
        for name, target in chosen.items():
            _try(name, target, mutated(rng.choice(target.samples), rng), result)
    return result


def _try(name: str, target: Target, data: bytes, result: Result) -> None:
    result.executions[name] += 1
    try:
        target.read(data)
    except CsiError:
        pass
    except Exception as error:  # a finding: parsers of foreign input raise errors of ours
        result.findings.append(Finding(name, f"{error!r:.200}", data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=list(TARGETS), default=[], help="only this one")
    parser.add_argument("--save", action="store_true", help="keep the input of each finding in tests/data/fuzz")
    asked = parser.parse_args()
    found = run(asked.seconds, asked.seed, asked.target)
    for finding in found.findings:
        sys.stdout.write(f"{finding}\n")
        if asked.save:
            SAMPLES.mkdir(exist_ok=True)
            (SAMPLES / f"{finding.target}-{hashlib.sha256(finding.data).hexdigest()[:12]}").write_bytes(finding.data)
    counts = " ".join(f"{name}={number}" for name, number in found.executions.items())
    sys.stdout.write(f"fuzz: {found.executions.total()} executions ({counts}), {len(found.findings)} findings\n")
    sys.exit(1 if found.findings else 0)


if __name__ == "__main__":
    main()
