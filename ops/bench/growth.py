"""Does it stay quick? The cost of an event while ever more keys and events are stored, and while retention runs."""

import sqlite3
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from csi import clock
from csi.runtime import Runtime
from ops.bench import stage

SIZES = (10_000, 1_000_000, 10_000_000)
RETIRED = 300_000
EVENTS_PER_THOUSAND_KEYS = 300
"""A key lives for 90 days, an event for 30."""

_KEYS = """
    INSERT INTO dedupe_keys (key, expires_at, reason, first_seen_at)
    WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
    SELECT printf('youtube:video:%011d', i), ?, 'emitted', ? FROM n
"""
_EVENTS = """
    INSERT INTO events (event_id, dedupe_key, source, event_type, occurred_at, received_at, subject_json, routing_json,
        metadata_json, delivered, created_at, contract_version, seq, tier, state, first_seen_at, delivered_at)
    WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
    SELECT printf('src:%011d', i), printf('youtube:video:%011d', i), 'youtube_playlist', 'video_added_to_playlist',
        ?, ?, ?, '{}', '{}', TRUE, ?, '1.0', i, 'standard', 'delivered', ?, ? FROM n
"""


def measure(sizes: Sequence[int] = SIZES, count: int = 2_000) -> dict[str, Any]:
    """CPU and wall time of one event in one thread, at each size of the same database."""
    with tempfile.TemporaryDirectory(prefix="csi-bench-") as home:
        costs, stored = [], 0
        for size in sizes:
            with stage.receiver() as to, stage.source(count) as origin:
                rt = _open(Path(home), origin, to)
                stored = fill(Path(home) / "state" / "csi.db", stored, size)
                costs.append({"keys": size, **_cost(rt, to, count)})
        return {"sizes": costs, "ratio": costs[-1]["cpu_ms_per_event"] / costs[0]["cpu_ms_per_event"]}


def _open(home: Path, origin: stage.Source, to: stage.Receiver) -> Runtime:
    from csi.flow import plan
    from csi.runtime import open_runtime

    config = stage.configure(home, origin, "standard")
    rt = open_runtime(config, stage.environment(config, to))
    plan.sync_watches(rt)
    return rt


def fill(path: Path, stored: int, size: int) -> int:
    """Filler in chunks. Its keys sort before and after each other as they come; those of the test lie all over."""
    now = time.time()
    text, subject = clock.iso(now), '{"platform":"youtube","title":"' + "x" * 200 + '"}'
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as db:
        for first in range(stored, size, 500_000):
            last = min(first + 500_000, size)
            db.execute(_KEYS, (first, last, clock.iso(now + 86_400 * 80), now))
            events = (first * EVENTS_PER_THOUSAND_KEYS // 1000, last * EVENTS_PER_THOUSAND_KEYS // 1000)
            if events[0] < events[1]:
                db.execute(_EVENTS, (*events, text, text, subject, text, now, now))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return size


def _cost(rt: Runtime, to: stage.Receiver, count: int) -> dict[str, float]:
    from ops.bench.walk import walk

    before, cpu = to.counts()["events"], time.process_time()
    began = time.monotonic()
    walk(rt, until=lambda: to.counts()["events"] - before >= count)
    return {
        "cpu_ms_per_event": 1000 * (time.process_time() - cpu) / count,
        "wall_ms_per_event": 1000 * (time.monotonic() - began) / count,
    }


def retention(keys: int = RETIRED) -> dict[str, float]:
    """The longest time that a writer waits while expired keys are deleted."""
    from csi.flow.retention import prune
    from csi.store import counters
    from csi.store.db import writing

    with tempfile.TemporaryDirectory(prefix="csi-bench-") as home, stage.receiver() as to, stage.source(0) as origin:
        rt = _open(Path(home), origin, to)
        fill(Path(home) / "state" / "csi.db", 0, keys)
        with closing(sqlite3.connect(Path(home) / "state" / "csi.db", timeout=60)) as db, db:
            db.execute("UPDATE dedupe_keys SET expires_at = ?", (clock.iso(time.time() - 86_400),))
        ended, waits = threading.Event(), []

        def write() -> None:
            while not ended.is_set():
                began = time.monotonic()
                with writing():
                    counters.add("bench")
                waits.append(time.monotonic() - began)
                ended.wait(0.005)

        writer = threading.Thread(target=write)
        writer.start()
        began = time.monotonic()
        prune(rt)
        spent = time.monotonic() - began
        ended.set()
        writer.join()
    return {"keys": keys, "seconds": spent, "longest_wait_ms": 1000 * max(waits), "writes": len(waits)}
