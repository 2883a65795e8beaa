"""make bench: how fast the line is on this machine, beside a plain loop that does the same work without any promise.

Everything runs on loopback: a simulated YouTube, a receiver in another process, the real worker. Machines are noisy:
compare the ratio to the plain loop of the same run.
"""

import argparse
import json
import os
import resource
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from csi.demo.serve import in_background
from csi.demo.stage import WORKER
from csi.demo.summary import percentile
from csi.demo.world import World
from csi.demo.youtube import API_PATH, Options, create_app
from csi.emitter.batch import envelope
from csi.emitter.http import Receiver, encode, send
from csi.ingester.signature import new_request_id
from csi.net import Net

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 120.0


@contextmanager
def receiver(home: Path, secret: str) -> Iterator[str]:
    """`csi receiver` as a process of its own. Yields its endpoint."""
    line = [sys.executable, "-m", "csi.cli.main", "receiver", "--port", "0", "--db", str(home / "receiver.db")]
    env = {**os.environ, "UA_SIGNALS_INGEST_SHARED_SECRET": secret}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()


def plain_loop(endpoint: str, secret: str, home: Path, count: int, per_request: int) -> float:
    """The floor, in events a second: a transaction per item, a POST per request; no queue, no lease, no retry."""
    db = sqlite3.connect(home / "floor.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=wal")
    db.execute("PRAGMA synchronous=normal")
    db.execute("CREATE TABLE events (id TEXT PRIMARY KEY, body TEXT)")
    net, target = Net(), Receiver(endpoint, secret, secret, 30.0)
    started = time.monotonic()
    for first in range(0, count, per_request):
        events = [_event(number) for number in range(first, min(first + per_request, count))]
        for event in events:
            db.execute("INSERT INTO events VALUES (?, ?)", (event["event_id"], json.dumps(event)))
        body = encode(envelope("bench", f"floor_{first}", events), "ascii")
        send(net, target, body, batch_id=f"floor_{first}", request_id=new_request_id(), now=time.time())
    return count / (time.monotonic() - started)


def _event(number: int) -> dict[str, Any]:
    return {
        "event_id": f"src:floor:{number}",
        "dedupe_key": f"floor:{number}",
        "source": "youtube_playlist",
        "event_type": "video_added_to_playlist",
        "occurred_at": "2026-02-22T12:00:00Z",
        "received_at": "2026-02-22T12:00:00Z",
        "subject": {"platform": "youtube", "title": f"Video {number}", "description": "x" * 400},
        "routing": {"pipeline": "bench", "priority": "standard", "tags": []},
    }


def line(endpoint: str, secret: str, home: Path, count: int, tier: str) -> dict[str, float]:
    """The real worker over the same number of items, found in ten playlists at once."""
    world = World()
    owner = world.add_channel("Bench", at=time.time()).id
    lists = [world.add_playlist(f"List {number}", owner=owner, at=time.time()).id for number in range(10)]
    for number in range(count):
        video = world.upload(owner, f"Video {number}", at=time.time() - count + number)
        world.add_to_playlist(lists[number % len(lists)], video.id, at=time.time() - count + number)
    with in_background(create_app(world, Options())) as base:
        config = _config(home / tier, base, lists, tier)
        env = {
            **os.environ,
            "CSI_CONFIG_PATH": str(config),
            "CSI_UA_ENDPOINT": endpoint,
            "CSI_UA_SHARED_SECRET": secret,
            "YOUTUBE_API_KEY": Options().api_key,
        }
        started = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "huey.bin.huey_consumer", *WORKER], env=env, cwd=ROOT)
        try:
            return _measure(home / tier, process, count, started)
        finally:
            process.terminate()
            process.wait()


def _config(home: Path, base: str, lists: list[str], tier: str) -> Path:
    home.mkdir()
    source = {
        "api_base_url": base + API_PATH,
        "priority": tier,
        "first_poll": "all",
        "poll_interval_seconds": 3600,
        "quota_limit": 10_000_000,
        "playlists": [{"id": ref} for ref in lists],
    }
    path = home / "config.yaml"
    settings = {
        "csi": {"state_dir": str(home / "state"), "log_level": "ERROR"},
        "sources": {"youtube_playlist": source},
        "delivery": {"priority_behavior": {"standard": {"batch_size": 100, "max_delay_seconds": 0.5}}},
    }
    path.write_text(yaml.safe_dump(settings))
    return path


def _measure(home: Path, process: subprocess.Popen[bytes], count: int, started: float) -> dict[str, float]:
    path = home / "state" / "csi.db"
    query = "SELECT first_seen_at, delivered_at FROM events WHERE state = 'delivered'"
    rows: list[tuple[float, float]] = []
    while len(rows) < count:
        if time.monotonic() - started > DEADLINE or process.poll() is not None:
            sys.exit(f"only {len(rows)} of {count} events were delivered")
        time.sleep(0.2)
        try:
            rows = sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute(query).fetchall()
        except sqlite3.OperationalError:
            continue  # the worker has not made it yet
    wall = max(end for _, end in rows) - min(start for start, _ in rows)
    times = sorted(1000 * (end - start) for start, end in rows)
    return {
        "events_per_second": count / wall,
        "p50_ms": percentile(times, 50) or 0,
        "p95_ms": percentile(times, 95) or 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="events per tier")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    secret, report = secrets.token_hex(16), {}
    with tempfile.TemporaryDirectory(prefix="csi-bench-") as directory:
        for tier, per_request in (("urgent", 1), ("standard", 100)):
            home = Path(directory) / f"bench-{tier}"
            home.mkdir()
            with receiver(home, secret) as endpoint:
                floor = plain_loop(endpoint, secret, home, options.count, per_request)
                found = line(endpoint, secret, home, options.count, tier)
            report[tier] = {**found, "floor_per_second": floor, "ratio_to_floor": found["events_per_second"] / floor}
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    if options.json:
        print(json.dumps({"count": options.count, "largest_process_mb": peak, **report}))
        return
    print(f"{options.count} events at once, from ten playlists; largest process {peak:.0f} MB\n")
    print(f"{'tier':10}{'events/s':>10}{'plain loop':>12}{'ratio':>8}{'p50 ms':>9}{'p95 ms':>9}")
    for tier, row in report.items():
        figures = f"{row['events_per_second']:10.0f}{row['floor_per_second']:12.0f}{row['ratio_to_floor']:8.2f}"
        print(f"{tier:10}{figures}{row['p50_ms']:9.0f}{row['p95_ms']:9.0f}")


if __name__ == "__main__":
    main()
