"""A mutator over inputs from outside: `python -m tests.fuzz --seconds 600 --seed 7` prints executions and findings."""

import argparse
import contextlib
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from csi.adapters.feed_document import read_feed
from csi.adapters.youtube.api_errors import api_json
from csi.admin.channel_lists import read_list
from csi.config.yaml_reader import parse_yaml
from csi.errors import CsiError
from csi.net.response import HttpHeaders, HttpResponse
from csi.receiver.batch import read_batch
from tasks.serializer import JsonSerializer
from tests.fakes.youtube_feed import entry, feed

ROOT = Path(__file__).resolve().parents[1]
PIECES = [
    b"\0",
    b"\xff\xfe",
    b"]]>",
    b"<!DOCTYPE x [",
    b"&a;",
    b"{",
    b"[" * 200,
    b"null",
    b"1e999",
    b'"',
    b"\n",
    b"!!x ",
]
EVENT = {"event_id": "e", "dedupe_key": "k", "source": "s", "event_type": "t", "occurred_at": "2026-01-01T00:00:00Z"}
BATCH = {"csi_version": "1.0", "csi_instance_id": "i", "batch_id": "b", "events": [EVENT]}
OPML = b'<opml version="1.0"><body><outline text="a" xmlUrl="https://a.example/feed"/></body></opml>'
QUEUE = JsonSerializer("fuzz-secret", "fuzz")


def _read_message(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        QUEUE.deserialize(data)


TARGETS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "feed": (feed(entry("vvvvvvvvvvv")), lambda data: read_feed(data, "application/xml", "https://a.example/f")),
    "api": (b'{"items": [{"id": "a"}]}', lambda data: api_json(HttpResponse(200, HttpHeaders(), data, "http://x"))),
    "receiver": (json.dumps(BATCH).encode(), lambda data: read_batch(data, frozenset())),
    "config": (
        (ROOT / "config/config.example.yaml").read_bytes()[:3000],
        lambda data: parse_yaml(data.decode("utf-8", "replace")),
    ),
    "opml": (OPML, read_list),
    "queue": (b"csi1:" + b"0" * 64 + b':{"task": "poll", "args": [1]}', _read_message),
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


def run(seconds: float, seed: int) -> tuple[int, list[str]]:
    """Executions, and the findings: errors that are none of ours, with the input that repeats them."""
    rng, ends, count, findings = random.Random(seed), time.monotonic() + seconds, 0, []
    while time.monotonic() < ends and len(findings) < 20:
        for name, (sample, target) in TARGETS.items():
            data, count = mutated(sample, rng), count + 1
            try:
                target(data)
            except CsiError:
                pass
            except Exception as error:
                findings.append(f"{name}: {error!r:.200} for {data!r:.400}")
    return count, findings


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    executions, found = run(asked.seconds, asked.seed)
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.stdout.write(f"fuzz: {executions} executions of {len(TARGETS)} targets, {len(found)} findings\n")
    sys.exit(1 if found else 0)
