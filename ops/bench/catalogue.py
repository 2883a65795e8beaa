"""make bench: the catalogue's queries on 500 channels, 200,000 videos, 5 million captures, a million finished jobs.

Times are medians of many runs on this machine; rows read do not depend on it. A row is counted by a function of our own
that stands first in the WHERE clause, so it is called for every row that is visited.
"""

import argparse
import os
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from csi import clock
from csi.store import api_units, db
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.queries import job_figures
from csi.store.uuid7 import new_id

NOW = 1_771_761_600.0
HOUR, DAY = 3600.0, 86_400.0
LIMIT_MS = 5.0
NEXT_JOB = "next job (10 due)"
RUNS = 200


def fill(path: Path, *, number: int, films: int, captures: int, finished: int) -> None:
    """Rows as they would be: most videos old, the newest captured by the hour."""
    rows = sqlite3.connect(path, isolation_level=None)
    rows.execute("PRAGMA synchronous=off")
    rows.execute("PRAGMA cache_size=-200000")
    rows.execute("BEGIN")
    rows.executemany(
        "INSERT INTO channels (id, title, tracked_since, next_refresh_at, view_count) VALUES (?, ?, ?, ?, 1)",
        ((channel_id(n), f"Channel {n}", NOW - 900 * DAY, NOW + n) for n in range(number)),
    )
    rows.executemany(
        "INSERT INTO videos (id, channel_id, title, published_at, first_seen_at, refresh_tier, next_refresh_at,"
        " view_count, last_refreshed_at) VALUES (?, ?, 'A title', ?, ?, ?, ?, 1000, ?)",
        _films(number, films),
    )
    rows.executemany(
        "INSERT INTO video_stats (id, video_id, captured_at, view_count, like_count, comment_count, hourly_views,"
        " daily_views) VALUES (?, ?, ?, ?, 40, 2, 5, 100)",
        _captures(films, captures),
    )
    rows.executemany(
        "INSERT INTO channel_stats (id, channel_id, captured_at, captured_on, view_count) VALUES (?, ?, ?, ?, ?)",
        (
            (new_id(at), channel_id(n), at, clock.iso(at)[:10], 1)
            for n in range(number)
            for at in (NOW - days * DAY for days in range(365))
        ),
    )
    rows.executemany(
        "INSERT INTO jobs (id, type, dedup_key, status, priority, scheduled_at, completed_at, created_at, changed_at)"
        " VALUES (?, 'REFRESH_HOT_VIDEOS', ?, ?, ?, ?, ?, ?, ?)",
        _jobs(finished),
    )
    rows.execute("COMMIT")
    rows.close()


def channel_id(number: int) -> str:
    return f"UC{number:022d}"


def video_id(number: int) -> str:
    return f"v{number:010d}"


def _films(number: int, films: int) -> Iterator[tuple[Any, ...]]:
    for n in range(films):
        age = n // number * 2 * DAY
        tier = "hot" if age <= 7 * DAY else "medium" if age <= 30 * DAY else "tail"
        yield video_id(n), channel_id(n % number), NOW - age, NOW - age, tier, NOW + n % 3_600, NOW


def _captures(films: int, captures: int) -> Iterator[tuple[Any, ...]]:
    """In the order of time, as they come."""
    rounds = max(captures // films, 1)
    for place in range(rounds):
        at = NOW - (rounds - place) * HOUR
        for n in range(films):
            yield new_id(at), video_id(n), at, 1_000 * place


def _jobs(finished: int) -> Iterator[tuple[Any, ...]]:
    rng = random.Random(7)
    for n in range(finished):
        at = NOW - rng.random() * 30 * DAY
        status = "completed" if n % 1_000 else "dead"
        yield new_id(at), f"k{n}", status, 1 + n % 10, at, at, at, at
    for n in range(50):
        yield new_id(NOW), f"p{n}", "pending", 1 + n % 10, NOW - n, None, NOW, NOW


CALLS: dict[str, Callable[[], Any]] = {
    NEXT_JOB: lambda: jobs.due(NOW, 10),
    "failed jobs that are due": lambda: jobs.release_failed(NOW),
    "unfinished jobs by type": lambda: job_figures.unfinished(),
    "oldest due job": lambda: job_figures.waiting_since(NOW),
    "completed jobs, a page": lambda: jobs.page(status="completed"),
    "jobs by status": lambda: job_figures.counts(),
    "channel status": lambda: channels.find(channel_id(7)),
    "recent video stats": lambda: stats.recent(video_id(77), 24),
    "hot videos of a channel": lambda: videos.of_channel(channel_id(7), since=NOW - 7 * DAY),
    "due videos": lambda: videos.due("hot", NOW),
    "baselines of 50 videos": lambda: stats.view_baselines([video_id(n) for n in range(50)], NOW - DAY, NOW - HOUR),
    "channel dashboard": lambda: channels.dashboard(clock.iso(NOW)[:10]),
    "trend of 90 days": lambda: stats.trend(channel_id(7), NOW - 90 * DAY),
    "quota used": lambda: api_units.used(NOW),
}


def measure(call: Callable[[], Any]) -> dict[str, Any]:
    """Median milliseconds, rows read, rows returned."""
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        found = call()
        times.append((time.perf_counter() - started) * 1_000)
    rows = len(found) if isinstance(found, list | dict) else 1
    return {"ms": statistics.median(times), "rows_read": rows_read(call), "rows": rows}


def rows_read(call: Callable[[], Any]) -> int | None:
    """The same statement with a counter in front of its outermost condition. None: it has none, and reads all."""
    seen, count = [], [0]
    hooks = db.database.obj.query_hooks
    hooks.append(lambda query: seen.append((query.sql, query.params)))
    try:
        call()
    finally:
        hooks.pop()
    connection = db.database.connection()
    connection.create_function("seen_row", 0, lambda: count.__setitem__(0, count[0] + 1) or 1)
    for sql, params in seen:
        counted, found = re.subn(r"\bWHERE\b", "WHERE seen_row() AND", sql, count=1)
        if not found:
            return None
        connection.execute(counted, params or ()).fetchall()
    return count[0]


def measure_all(*, number: int, films: int, captures: int, finished: int) -> dict[str, Any]:
    """Every query on a catalogue of this size, and the size of its file."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "csi.db"
        db.open_database(str(path))
        db.migrate()
        started = time.monotonic()
        fill(path, number=number, films=films, captures=captures, finished=finished)
        made = {"mib": round(os.path.getsize(path) / 2**20), "made_in_seconds": round(time.monotonic() - started)}
        with db.connection():
            return made | {"queries": {name: measure(call) for name, call in CALLS.items()}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, default=500)
    parser.add_argument("--videos", type=int, default=200_000)
    parser.add_argument("--captures", type=int, default=5_000_000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    wish = parser.parse_args()
    found = measure_all(number=wish.channels, films=wish.videos, captures=wish.captures, finished=wish.jobs)
    print(
        f"{wish.channels:,} channels, {wish.videos:,} videos, {wish.captures:,} captures, {wish.jobs:,} finished jobs:"
    )
    print(f"{found['mib']:,} MiB, made in {found['made_in_seconds']} s")
    print("\n".join(table(found["queries"])))
    return 0 if found["queries"][NEXT_JOB]["ms"] < LIMIT_MS else 1


def table(queries: dict[str, Any]) -> list[str]:
    lines = [f"{'query':<26} {'median ms':>10} {'rows read':>10} {'rows':>6}"]
    for name, one in queries.items():
        read = "all" if one["rows_read"] is None else f"{one['rows_read']:,}"
        lines.append(f"{name:<26} {one['ms']:>10.3f} {read:>10} {one['rows']:>6,}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
