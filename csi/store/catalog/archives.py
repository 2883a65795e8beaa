"""The `archives` table (which rows are in which file, up to which byte) and the rows that are archived."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from csi.store.catalog import jobs, partitions
from csi.store.catalog.stats import VideoStats
from csi.store.db import changed, fetch, is_postgres, marks, run

CHUNK = 500
ArchiveKind = Literal["video_stats", "jobs"]
"""A table whose old rows are archived."""


@dataclass(frozen=True)
class Archive:
    """One file. `bytes` is its committed length: bytes after it were left by a crash and are overwritten."""

    name: str
    kind: ArchiveKind
    month: str
    rows: int
    bytes: int
    written_at: float | None
    kept_until: float | None
    """Its rows were restored into the tables and stay there until then."""


COLUMNS = {"video_stats": tuple(VideoStats.__dataclass_fields__), "jobs": tuple(jobs.COLUMNS.split(", "))}
_MOMENT = {"video_stats": "captured_at", "jobs": "completed_at"}
_RANGE = {
    "video_stats": "captured_at >= ? AND captured_at < ?",
    # Settled jobs that still have their payload; the condition is that of the partial index.
    "jobs": "completed_at >= ? AND completed_at < ? AND completed_at IS NOT NULL AND archived_at IS NULL",
}
_SURPLUS = """FROM video_stats s WHERE s.captured_at >= ? AND s.captured_at < ? AND EXISTS (
    SELECT 1 FROM video_stats l
    WHERE l.video_id = s.video_id AND l.captured_at > s.captured_at AND l.captured_at < ?)"""
# Which rows are deleted in the end, and in which order.
_OLD = {
    "video_stats": ("captured_at < ?", ""),
    "channel_stats": ("captured_at < ?", ""),
    "job_events": ("occurred_at < ?", "ORDER BY occurred_at"),
    "jobs": ("completed_at < ? AND archived_at IS NOT NULL", "ORDER BY completed_at"),
}
_ARCHIVE = ", ".join(Archive.__dataclass_fields__)


def every() -> list[Archive]:
    return [Archive(*row) for row in fetch(f"SELECT {_ARCHIVE} FROM archives ORDER BY name")]


def find(name: str) -> Archive | None:
    rows = fetch(f"SELECT {_ARCHIVE} FROM archives WHERE name = ?", name)
    return Archive(*rows[0]) if rows else None


def lock(name: str, kind: str, month: str) -> Archive:
    """Lock this file's row until the transaction ends, so that two workers never write the same file."""
    run("INSERT INTO archives (name, kind, month) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING", name, kind, month)
    lock = "FOR UPDATE" if is_postgres() else ""
    return Archive(*fetch(f"SELECT {_ARCHIVE} FROM archives WHERE name = ? {lock}", name)[0])


def record_write(name: str, rows: int, size: int, now: float) -> None:
    # In the transaction that deletes the rows: after a crash the rows are still in the table, and the bytes that were
    # written to the file already are behind `bytes` and are overwritten.
    run("UPDATE archives SET rows = rows + ?, bytes = ?, written_at = ? WHERE name = ?", rows, size, now, name)


def keep_restored_until(name: str, until: float) -> None:
    """Keep the rows of its month in the tables until then."""
    run("UPDATE archives SET kept_until = ? WHERE name = ?", until, name)


def mark_restored(name: str) -> None:
    """Its rows are in the tables again: the file counts as empty and is written from the start next time."""
    run("UPDATE archives SET rows = 0, bytes = 0 WHERE name = ?", name)


def forget(name: str) -> None:
    run("DELETE FROM archives WHERE name = ?", name)


def kept_months(kind: ArchiveKind, now: float) -> list[str]:
    """Months whose restored rows must stay in the tables for now."""
    return [row[0] for row in fetch("SELECT month FROM archives WHERE kind = ? AND kept_until > ?", kind, now)]


def released_months(kind: ArchiveKind, now: float) -> list[str]:
    """Months whose restored rows may be archived again."""
    return [row[0] for row in fetch("SELECT month FROM archives WHERE kind = ? AND kept_until <= ?", kind, now)]


def end_keeping(now: float) -> None:
    run("UPDATE archives SET kept_until = NULL WHERE kept_until <= ?", now)


# ── rows that are archived ──────────────────────────────────────────────────────────────────────────────


def first_moment(kind: ArchiveKind, low: float, high: float) -> float | None:
    """The time of the oldest capture, or when the oldest job was settled, between these times."""
    found = fetch(f"SELECT MIN({_MOMENT[kind]}) FROM {kind} WHERE {_RANGE[kind]}", low, high)[0][0]
    return None if found is None else float(found)


def old_rows(kind: ArchiveKind, low: float, high: float) -> list[tuple[Any, ...]]:
    """A chunk of the rows between these times, the oldest first."""
    sql = f"SELECT {', '.join(COLUMNS[kind])} FROM {kind} WHERE {_RANGE[kind]} ORDER BY {_MOMENT[kind]} LIMIT ?"
    return fetch(sql, low, high, CHUNK)


def count_rows(kind: ArchiveKind, low: float, high: float) -> int:
    return int(fetch(f"SELECT COUNT(*) FROM {kind} WHERE {_RANGE[kind]}", low, high)[0][0])


def surplus_stats(low: float, day_end: float) -> list[tuple[Any, ...]]:
    """Captures of one day that are not the last of their video on it."""
    names = ", ".join(f"s.{name}" for name in COLUMNS["video_stats"])
    return fetch(f"SELECT {names} {_SURPLUS} ORDER BY s.captured_at LIMIT ?", low, day_end, day_end, CHUNK)


def count_surplus(low: float, day_end: float) -> int:
    return int(fetch(f"SELECT COUNT(*) {_SURPLUS}", low, day_end, day_end)[0][0])


def drop_stats(rows: Sequence[tuple[Any, ...]]) -> int:
    low, high = rows[0][2], rows[-1][2]
    ids = [row[0] for row in rows]
    sql = f"DELETE FROM video_stats WHERE captured_at BETWEEN ? AND ? AND id IN ({marks(ids)})"
    return changed(sql, low, high, *ids)


def strip_jobs(rows: Sequence[tuple[Any, ...]], now: float) -> int:
    """Remove payload, video ids and progress of archived jobs; the other columns stay."""
    ids = [row[0] for row in rows]
    sql = f"""UPDATE jobs SET payload = NULL, video_ids = NULL, progress = NULL, archived_at = ?
        WHERE id IN ({marks(ids)}) AND archived_at IS NULL AND status IN ('completed', 'dead')"""
    return changed(sql, now, *ids)


def restore_rows(kind: ArchiveKind, rows: Sequence[dict[str, Any]]) -> int:
    """Put a chunk of archived rows back into their table. Returns how many of them are in it now.

    Statistics that are in the table stay as they are. A job that is still there gets its payload back; one that
    retention has deleted is inserted again.
    """
    if kind == "video_stats":
        for month in sorted({partitions.month_of(row["captured_at"]) for row in rows}):
            partitions.ensure_partition("video_stats", partitions.month_starts(month))
    names = COLUMNS[kind]
    conflict = {
        "video_stats": "DO NOTHING",
        "jobs": "(id) DO UPDATE SET payload = excluded.payload, video_ids = excluded.video_ids, "
        "progress = excluded.progress, archived_at = NULL",
    }
    places = ", ".join([f"({marks(names)})"] * len(rows))
    sql = f"INSERT INTO {kind} ({', '.join(names)}) VALUES {places} ON CONFLICT {conflict[kind]}"
    # Files of earlier versions have no attempts without progress.
    complete = [{"fruitless_attempts": row.get("attempts", 0)} | row for row in rows]
    run(sql, *(row.get(name) for row in complete for name in names))
    ids = [row["id"] for row in rows]
    return int(fetch(f"SELECT COUNT(*) FROM {kind} WHERE id IN ({marks(ids)})", *ids)[0][0])


# ── rows that are deleted ───────────────────────────────────────────────────────────────────────────────


def drop_before(table: str, before: float) -> int:
    """Delete a chunk of rows before this time: archived jobs with their history; statistics, archived or not."""
    where, order = _OLD[table]
    ids = [row[0] for row in fetch(f"SELECT id FROM {table} WHERE {where} {order} LIMIT ?", before, CHUNK)]
    if not ids:
        return 0
    if table == "jobs":
        run(f"DELETE FROM job_events WHERE job_id IN ({marks(ids)})", *ids)
    return changed(f"DELETE FROM {table} WHERE {where} AND id IN ({marks(ids)})", before, *ids)


def count_before(table: str, before: float) -> int:
    """How many rows repeated calls of `drop_before` would delete."""
    return int(fetch(f"SELECT COUNT(*) FROM {table} WHERE {_OLD[table][0]}", before)[0][0])


def drop_budget(before: str, share: str) -> int:
    """Delete days of the API budget before this date, and the counters of this share."""
    run("DELETE FROM counters WHERE name = ? AND label < ?", share, before)
    return changed("DELETE FROM api_budget WHERE id < ?", before)
