"""How much the receiver verifies: signed events at a steady rate, every one accepted or answered with 503, none lost.

`python -m ops.bench.receiver --rate 1000 --seconds 60`. All on loopback; the receiver is a process of its own.
"""

import argparse
import json
import os
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from csi.demo.reconciliation import percentile
from csi.emitter.http import envelope
from csi.errors import NetError
from csi.ingester.signature import canonical, headers
from csi.net import Net

ROOT = Path(__file__).resolve().parents[2]
RATE = 1000
PER_REQUEST = 20
THREADS = 16


class Books:
    """What the senders saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.accepted: set[str] = set()
        self.times: list[float] = []

    def note(self, status: int, ids: list[str], elapsed: float) -> None:
        with self.lock:
            self.statuses[status] += 1
            self.times.append(elapsed)
            if status == 200:
                self.accepted.update(ids)


def event(name: str) -> dict[str, Any]:
    return {
        "event_id": name,
        "dedupe_key": name,
        "source": "youtube_playlist",
        "event_type": "video_added_to_playlist",
        "occurred_at": "2026-02-22T12:00:00Z",
        "received_at": "2026-02-22T12:00:00Z",
        "subject": {"platform": "youtube", "title": f"Über {name} 🚀", "description": "x" * 400},
        "routing": {"pipeline": "bench", "priority": "standard", "tags": []},
    }


def send(net: Net, url: str, secret: str, books: Books, ids: list[str]) -> None:
    """One batch, again after a 503 as the sender's contract says; here at most ten times."""
    body = canonical(envelope("bench", f"batch_{ids[0]}", [event(name) for name in ids]), "ascii")
    for _ in range(10):
        sent = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        started = time.monotonic()
        try:
            status = net.post(url, body=body, headers=sent | headers(secret, body, now=time.time())).status
        except NetError:
            status = 0
        books.note(status, ids, time.monotonic() - started)
        if status != 503:
            return
        time.sleep(1)


def load(url: str, secret: str, books: Books, *, rate: int, seconds: float, per_request: int, threads: int) -> int:
    """Requests at their time; a free thread sends the next one. Returns how many events were sent."""
    total = int(rate * seconds / per_request)
    turn, lock, started = iter(range(total)), threading.Lock(), time.monotonic()
    net = Net(max_connections=threads)

    def work() -> None:
        while True:
            with lock:
                number = next(turn, None)
            if number is None:
                return
            time.sleep(max(0.0, started + number * per_request / rate - time.monotonic()))
            send(net, url, secret, books, [f"ev:{number}:{index}" for index in range(per_request)])

    crew = [threading.Thread(target=work) for _ in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    net.close()
    return total * per_request


def memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def watch_memory(pid: int, seen: list[float], over: threading.Event) -> None:
    while not over.wait(1.0):
        seen.append(memory(pid))


def run(rate: int, seconds: float, per_request: int = PER_REQUEST, threads: int = THREADS) -> dict[str, Any]:
    secret, books, seen, over = secrets.token_hex(24), Books(), [], threading.Event()
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "receiver.db"
        line = [sys.executable, "-m", "csi.cli.main", "receiver", "--port", "0", "--db", str(path)]
        env = {**os.environ, "UA_SIGNALS_INGEST_SHARED_SECRET": secret}
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env, cwd=ROOT
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            watcher = threading.Thread(target=watch_memory, args=(process.pid, seen, over))
            watcher.start()
            started = time.monotonic()
            sent = load(url, secret, books, rate=rate, seconds=seconds, per_request=per_request, threads=threads)
            elapsed = time.monotonic() - started
            over.set()
            watcher.join()
        finally:
            process.terminate()
            process.wait()
        with sqlite3.connect(path) as db:
            stored = {row[0] for row in db.execute("SELECT event_id FROM signals")}
        db.close()
    times = sorted(1000 * value for value in books.times)
    early, late = seen[len(seen) // 4 : len(seen) // 2] or seen, seen[-max(len(seen) // 4, 1) :]
    return {
        "sent": sent,
        "accepted": len(books.accepted),
        "lost": len(books.accepted - stored),
        "unexpected": len(stored) - len(stored & books.accepted),
        "statuses": dict(sorted(books.statuses.items())),
        "events_per_second": round(len(books.accepted) / elapsed),
        "p50_ms": percentile(times, 50),
        "p99_ms": percentile(times, 99),
        "not_answered": sum(count for status, count in books.statuses.items() if status not in (200, 503)),
        "memory_mb": [round(sum(part) / len(part), 1) for part in (early, late)] if seen else [],
        "memory_growth_mb": round(sum(late) / len(late) - sum(early) / len(early), 1) if seen else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=RATE, help="events a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--per-request", type=int, default=PER_REQUEST)
    parser.add_argument("--threads", type=int, default=THREADS)
    given = parser.parse_args()
    result = run(given.rate, given.seconds, given.per_request, given.threads)
    print(json.dumps(result))
    sys.exit(1 if result["lost"] or result["not_answered"] else 0)


if __name__ == "__main__":
    main()
