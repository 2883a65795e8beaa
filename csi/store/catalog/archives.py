"""The `archives` table (which rows are in which file, up to which byte) and the rows that are archived."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from csi.store.catalog import jobs, partitions
from csi.store.db import changed, chunks, fetch, is_postgres, marks, run

CHUNK = 500
DAY = 86_400.0
STATS = ("id", "video_id", "captured_at", "view_count", "like_count", "comment_count", "hourly_views", "daily_views")
JOBS = tuple(jobs.COLUMNS.split(", "))


@dataclass(frozen=True)
class Archive:
    """One file. `bytes` is its committed length: bytes after it were left by a crash and are overwritten."""

    name: str
    kind: str
    month: str
    rows: int
    bytes: int
    written_at: float | None
    kept_until: float | None
    """Its rows were restored into the tables and stay there until then."""


_COLUMNS = ", ".join(Archive.__dataclass_fields__)


def every() -> list[Archive]:
    return [Archive(*row) for row in fetch(f"SELECT {_COLUMNS} FROM archives ORDER BY name")]


def find(name: str) -> Archive | None:
    rows = fetch(f"SELECT {_COLUMNS} FROM archives WHERE name = ?", name)
    return Archive(*rows[0]) if rows else None


def lock(name: str, kind: str, month: str) -> Archive:
    """Lock this file's row until the transaction ends, so that two workers never write the same file."""
    run("INSERT INTO archives (name, kind, month) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING", name, kind, month)
    lock = "FOR UPDATE" if is_postgres() else ""
    return Archive(*fetch(f"SELECT {_COLUMNS} FROM archives WHERE name = ? {lock}", name)[0])


def record_write(name: str, rows: int, size: int, now: float) -> None:
    # In the transaction that deletes the rows: after a crash the rows are still in the table, and the bytes that were
    # written to the file already are behind `bytes` and are overwritten.
    sql = "UPDATE archives SET rows = rows + ?, bytes = ?, written_at = ? WHERE name = ?"
    run(sql, rows, size, now, name)


def keep_restored_until(name: str, until: float) -> None:
    """Keep the rows of its month in the tables until then."""
    run("UPDATE archives SET kept_until = ? WHERE name = ?", until, name)


def mark_restored(name: str) -> None:
    """Its rows are in the tables again: the file counts as empty and is written from the start next time."""
    run("UPDATE archives SET rows = 0, bytes = 0 WHERE name = ?", name)


def forget(name: str) -> None:
    run("DELETE FROM archives WHERE name = ?", name)


def kept_months(kind: str, now: float) -> list[str]:
    """Months whose restored rows must stay in the tables for now."""
    sql = "SELECT month FROM archives WHERE kind = ? AND kept_until > ?"
    return [row[0] for row in fetch(sql, kind, now)]


def released_months(kind: str, now: float) -> list[str]:
    """Months whose restored rows may be archived again."""
    sql = "SELECT month FROM archives WHERE kind = ? AND kept_until <= ?"
    return [row[0] for row in fetch(sql, kind, now)]


def end_keeping(now: float) -> None:
    run("UPDATE archives SET kept_until = NULL WHERE kept_until <= ?", now)


# ── statistics ──────────────────────────────────────────────────────────────────────────────────────────


def oldest_stats(before: float) -> float | None:
    """The time of the oldest capture before this time."""
    return _first("SELECT MIN(captured_at) FROM video_stats WHERE captured_at < ?", before)


def next_stats(at: float, before: float) -> float | None:
    """The time of the first capture from `at` to `before`."""
    return _first("SELECT MIN(captured_at) FROM video_stats WHERE captured_at >= ? AND captured_at < ?", at, before)


def old_stats(low: float, high: float) -> list[tuple[Any, ...]]:
    """Captures between these times, the oldest first."""
    sql = f"""SELECT {", ".join(STATS)} FROM video_stats WHERE captured_at >= ? AND captured_at < ?
        ORDER BY captured_at LIMIT ?"""
    return fetch(sql, low, high, CHUNK)


def count_stats(low: float, high: float) -> int:
    return _count("SELECT COUNT(*) FROM video_stats WHERE captured_at >= ? AND captured_at < ?", low, high)


_SURPLUS = """FROM video_stats s WHERE s.captured_at >= ? AND s.captured_at < ? AND EXISTS (
    SELECT 1 FROM video_stats l
    WHERE l.video_id = s.video_id AND l.captured_at > s.captured_at AND l.captured_at < ?)"""


def surplus_stats(low: float, day_end: float) -> list[tuple[Any, ...]]:
    """Captures of one day that are not the last of their video on it."""
    names = ", ".join(f"s.{name}" for name in STATS)
    sql = f"SELECT {names} {_SURPLUS} ORDER BY s.captured_at LIMIT ?"
    return fetch(sql, low, day_end, day_end, CHUNK)


def count_surplus(low: float, day_end: float) -> int:
    return _count(f"SELECT COUNT(*) {_SURPLUS}", low, day_end, day_end)


def drop_stats(rows: Sequence[tuple[Any, ...]]) -> int:
    low, high = rows[0][2], rows[-1][2]
    ids = [row[0] for row in rows]
    sql = f"DELETE FROM video_stats WHERE captured_at BETWEEN ? AND ? AND id IN ({marks(ids)})"
    return changed(sql, low, high, *ids)


def restore_stats(rows: Sequence[dict[str, Any]]) -> int:
    for month in sorted({partitions.month_of(row["captured_at"]) for row in rows}):
        partitions.ensure_partition("video_stats", partitions.month_starts(month))
    put = 0
    for chunk in chunks(rows, CHUNK):
        places = ", ".join([f"({marks(STATS)})"] * len(chunk))
        sql = f"INSERT INTO video_stats ({', '.join(STATS)}) VALUES {places} ON CONFLICT DO NOTHING"
        put += changed(sql, *(row[name] for row in chunk for name in STATS))
    return put


def drop_stats_before(before: float) -> dict[str, int]:
    """Delete a chunk of all statistics before this time, archived or not (youtube_policy: strict)."""
    gone = {}
    for table in ("video_stats", "channel_stats"):
        ids = [row[0] for row in fetch(f"SELECT id FROM {table} WHERE captured_at < ? LIMIT ?", before, CHUNK)]
        gone[table] = changed(f"DELETE FROM {table} WHERE id IN ({marks(ids)})", *ids) if ids else 0
    return gone


def count_stats_before(before: float) -> dict[str, int]:
    """How many rows repeated calls of `drop_stats_before` would delete."""
    tables = ("video_stats", "channel_stats")
    return {table: _count(f"SELECT COUNT(*) FROM {table} WHERE captured_at < ?", before) for table in tables}


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────


def oldest_job(before: float) -> float | None:
    """When the oldest settled job with a payload was settled."""
    sql = (
        "SELECT MIN(completed_at) FROM jobs WHERE completed_at IS NOT NULL AND archived_at IS NULL AND completed_at < ?"
    )
    return _first(sql, before)


def next_job(at: float, before: float) -> float | None:
    sql = """SELECT MIN(completed_at) FROM jobs WHERE completed_at >= ? AND completed_at < ?
        AND completed_at IS NOT NULL AND archived_at IS NULL"""
    return _first(sql, at, before)


def old_jobs(low: float, high: float) -> list[tuple[Any, ...]]:
    sql = f"""SELECT {jobs.COLUMNS} FROM jobs WHERE completed_at >= ? AND completed_at < ?
        AND completed_at IS NOT NULL AND archived_at IS NULL ORDER BY completed_at LIMIT ?"""
    return fetch(sql, low, high, CHUNK)


def count_jobs(low: float, high: float) -> int:
    sql = """SELECT COUNT(*) FROM jobs WHERE completed_at >= ? AND completed_at < ?
        AND completed_at IS NOT NULL AND archived_at IS NULL"""
    return _count(sql, low, high)


def strip_jobs(rows: Sequence[tuple[Any, ...]], now: float) -> int:
    """Remove payload, video ids and progress of archived jobs; the other columns stay."""
    ids = [row[0] for row in rows]
    sql = f"""UPDATE jobs SET payload = NULL, video_ids = NULL, progress = NULL, archived_at = ?
        WHERE id IN ({marks(ids)}) AND archived_at IS NULL AND status IN ('completed', 'dead')"""
    return changed(sql, now, *ids)


def restore_jobs(rows: Sequence[dict[str, Any]]) -> int:
    sql = "UPDATE jobs SET payload = ?, video_ids = ?, progress = ?, archived_at = NULL WHERE id = ?"
    return sum(changed(sql, row["payload"], row["video_ids"], row["progress"], row["id"]) for row in rows)


def drop_jobs(before: float) -> int:
    """Delete a chunk of archived jobs that were settled before this time, with their history."""
    sql = "SELECT id FROM jobs WHERE archived_at IS NOT NULL AND completed_at < ? ORDER BY completed_at LIMIT ?"
    ids = [row[0] for row in fetch(sql, before, CHUNK)]
    if not ids:
        return 0
    run(f"DELETE FROM job_events WHERE job_id IN ({marks(ids)})", *ids)
    return changed(f"DELETE FROM jobs WHERE id IN ({marks(ids)}) AND archived_at IS NOT NULL", *ids)


def count_archived_jobs(before: float) -> int:
    return _count("SELECT COUNT(*) FROM jobs WHERE archived_at IS NOT NULL AND completed_at < ?", before)


def count_events(before: float) -> int:
    return _count("SELECT COUNT(*) FROM job_events WHERE occurred_at < ?", before)


def drop_events(before: float) -> int:
    sql = "SELECT id FROM job_events WHERE occurred_at < ? ORDER BY occurred_at LIMIT ?"
    ids = [row[0] for row in fetch(sql, before, CHUNK)]
    if not ids:
        return 0
    return changed(f"DELETE FROM job_events WHERE occurred_at < ? AND id IN ({marks(ids)})", before, *ids)


def drop_budget(before: str, share: str) -> int:
    """Delete days of the API budget before this date, and the counters of this share."""
    run("DELETE FROM counters WHERE name = ? AND label < ?", share, before)
    return changed("DELETE FROM api_budget WHERE id < ?", before)


def as_json(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    lines = [json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":")) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _count(sql: str, *values: Any) -> int:
    return int(fetch(sql, *values)[0][0])


def _first(sql: str, *values: Any) -> float | None:
    found = fetch(sql, *values)[0][0]
    return None if found is None else float(found)
