"""Does it stay quick? The cost of an event while ever more keys and events are stored, and urgent deliveries while
retention deletes a day of them."""

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from csi import clock
from csi.runtime import Runtime
from csi.sql import SqliteOneWriter
from csi.store.models import database
from ops.bench import line, stage

DAY = 86_400.0
SIZES = (10_000, 1_000_000, 10_000_000)
KEYS_A_DAY, EVENTS_A_DAY = 111_111, 100_000
"""A key lives for 90 days, an event for 30: ten million keys beside three million events."""

EVENTS_PER_THOUSAND_KEYS = 300
BEFORE_SECONDS = 10.0
DEADLINE = 90.0

_KEYS = """
    INSERT INTO dedupe_keys (key, expires_at, reason, first_seen_at)
    WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
    SELECT printf('youtube:video:%011d', i), strftime('%Y-%m-%dT%H:%M:%SZ', ? + i * ?, 'unixepoch'), 'emitted', ? FROM n
"""
_EVENTS = """
    INSERT INTO events (event_id, dedupe_key, source, event_type, occurred_at, received_at, subject_json, routing_json,
        metadata_json, delivered, created_at, contract_version, seq, tier, state, first_seen_at, delivered_at)
    WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
    SELECT printf('src:%011d', i), printf('youtube:video:%011d', i), 'youtube_playlist', 'video_added_to_playlist',
        ?, ?, ?, '{}', '{}', TRUE, ?, '1.0', i, 'standard', 'delivered', ? + i * ?, ? + i * ? FROM n
"""


def measure(sizes: Sequence[int] = SIZES, count: int = 2_000) -> dict[str, Any]:
    """CPU and wall time of one event in one thread, at each size of the same database; retention in the largest."""
    with tempfile.TemporaryDirectory(prefix="csi-bench-") as home:
        costs, stored = [], 0
        for size in sizes:
            with stage.receiver() as to, stage.source(count) as origin:
                rt = _open(Path(home), origin, to)
                _leave()
                stored = fill(Path(home) / "state" / "csi.db", stored, size)
                costs.append({"keys": size, **_cost(rt, to, count)})
                _leave()
        ratio = costs[-1]["cpu_ms_per_event"] / costs[0]["cpu_ms_per_event"]
        return {"sizes": costs, "ratio": ratio, "retention": retention(Path(home))}


def _leave() -> None:
    """Close what this process has open: the filler changes the kind of the log."""
    if isinstance(database.obj, SqliteOneWriter):
        database.obj.close_writer()
    database.close()


def _open(home: Path, origin: stage.Source, to: stage.Receiver) -> Runtime:
    from csi.pipeline import schedule
    from csi.runtime import open_runtime

    config = stage.configure(home, origin, "standard")
    rt = open_runtime(config, stage.environment(config, to))
    schedule.sync_watches(rt)
    return rt


def fill(path: Path, stored: int, size: int) -> int:
    """Filler in chunks: a day of it is older than its time. Its keys sort before and after each other as they come;
    those of the test lie all over. Without a log, which would be written twice: no other process may have it open."""
    now = time.time()
    text, subject = clock.iso(now), '{"platform":"youtube","title":"' + "x" * 200 + '"}'
    ends, seen = (now - DAY, DAY / KEYS_A_DAY), (now - 31 * DAY, DAY / EVENTS_A_DAY)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as db:
        for pragma in ("journal_mode=off", "synchronous=off", "cache_size=-300000"):
            db.execute(f"PRAGMA {pragma}")
        _age(db, seen[0] + stored * EVENTS_PER_THOUSAND_KEYS // 1000 * seen[1], now)
        for first in range(stored, size, 500_000):
            last = min(first + 500_000, size)
            db.execute(_KEYS, (first, last, *ends, now))
            events = (first * EVENTS_PER_THOUSAND_KEYS // 1000, last * EVENTS_PER_THOUSAND_KEYS // 1000)
            if events[0] < events[1]:
                db.execute(_EVENTS, (*events, text, text, subject, text, *seen, *seen))
        db.execute("PRAGMA journal_mode=wal")
    with path.open("rb") as file:
        os.fsync(file.fileno())  # or the first checkpoint of the test would wait for all of it
    return size


def _age(db: sqlite3.Connection, moment: float, now: float) -> None:
    """Events of the test before are as old as the filler around them: retention relies on ids that grow with time."""
    sql = "UPDATE events SET first_seen_at = ?, delivered_at = ? WHERE event_id > 'src:1' AND first_seen_at > ?"
    db.execute(sql, (moment, moment, now - DAY / 2))


def _cost(rt: Runtime, to: stage.Receiver, count: int) -> dict[str, float]:
    from ops.bench.walk import walk

    before, cpu = to.counts()["events"], time.process_time()
    began = time.monotonic()
    walk(rt, until=lambda: to.counts()["events"] - before >= count)
    return {
        "cpu_ms_per_event": 1000 * (time.process_time() - cpu) / count,
        "wall_ms_per_event": 1000 * (time.monotonic() - began) / count,
    }


def retention(home: Path) -> dict[str, float]:
    """Urgent events at a steady rate through the real worker, first alone, then beside its hourly retention, which
    finds a day of events and keys. The delay is the longest way, first seen to accepted, over the usual one alone."""
    place = home / "state" / "csi.db"
    with stage.receiver() as to, stage.source(0, line.STEADY_RATE) as origin:
        config = stage.configure(home, origin, "urgent", interval=1.0)
        with stage.worker(config, to) as worker:
            to.wait_for(int(line.STEADY_RATE), worker)
            quiet = time.time()
            time.sleep(BEFORE_SECONDS)
            before = _stored(place)
            began = _prune(config, to, place)
            ended = _last_removal(place)
            removed = before - _stored(place)
            time.sleep(2)  # the last of them arrive
            seen, arrived = line.first_seen(home, since=quiet), to.arrived()
    waits = [(seen[name], 1000 * (at - seen[name])) for name, at in arrived.items() if name in seen]
    alone = [wait for at, wait in waits if at < began - 1]
    beside = [wait for at, wait in waits if began - 1 <= at <= ended]
    return {
        "events_removed": removed,
        "seconds": ended - began,
        "deliveries": len(beside),
        "usual_ms": statistics.median(alone),
        "longest_alone_ms": max(alone),
        "longest_beside_ms": max(beside),
        "longest_delay_ms": max(beside) - statistics.median(alone),
    }


def _prune(config: Path, to: stage.Receiver, place: Path) -> float:
    """Have the worker run its hourly task now. Returns when the first rows went."""
    oldest = _ask(place, "SELECT MIN(id) FROM events")
    code = "from tasks.prune import prune_rows; prune_rows()"
    with stage.started([sys.executable, "-c", code], stage.environment(config, to), stdout=subprocess.DEVNULL) as one:
        assert one.process is not None
        one.process.wait(30)
    _until(lambda: _ask(place, "SELECT MIN(id) FROM events") != oldest)
    return time.time()


def _last_removal(place: Path) -> float:
    """When retention removed its last rows: it is over once the number of events stays the same for two seconds."""
    seen, at = _stored(place), time.time()

    def is_over() -> bool:
        nonlocal seen, at
        if (now_stored := _stored(place)) != seen:
            seen, at = now_stored, time.time()
        return time.time() - at > 2

    _until(is_over)
    return at


def _stored(place: Path) -> int:
    """Events of the filler, quickly: they lie in one piece."""
    return int(_ask(place, "SELECT MAX(id) - MIN(id) + 1 FROM events WHERE event_id < 'src:1'") or 0)


def _ask(place: Path, sql: str) -> Any:
    with closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True, timeout=10)) as db:
        found = db.execute(sql).fetchone()
    return found[0] if found else None


def _until(ready: Callable[[], bool]) -> None:
    ends = time.monotonic() + DEADLINE
    while not ready():
        if time.monotonic() > ends:
            sys.exit(f"retention was not over after {DEADLINE:g} s")
        time.sleep(0.05)
