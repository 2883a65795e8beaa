"""Announced streams whose first event was stored and that have not begun. A row is deleted when the stream has."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import changed, column, columns, fetch_all, marks, new_token, run

LEASE_SECONDS = 45.0
AT_ONCE = 50
"""What one call of the API looks up."""


@dataclass(frozen=True)
class AwaitedStream:
    """One announced stream of one watch."""

    id: int
    watch_id: int
    source: str
    video_id: str
    subject_json: str
    since: float
    scheduled_at: float | None
    misses: int
    due_at: float
    lease_token: str | None


def add(watch_id: int, source: str, video_id: str, subject_json: str, due_at: float, now: float) -> None:
    sql = (
        "INSERT INTO awaited_streams (watch_id, source, video_id, subject_json, since, due_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (watch_id, video_id) DO NOTHING"
    )
    run(sql, watch_id, source, video_id, subject_json, now, due_at)


def due_sources(now: float) -> list[str]:
    sql = (
        "SELECT DISTINCT source FROM awaited_streams WHERE due_at <= ? AND (lease_until IS NULL OR lease_until < ?) "
        "ORDER BY source"
    )
    return column(sql, now, now)


def claim(source: str, now: float) -> list[AwaitedStream]:
    """Those of this source that are due, the first ones first."""
    where = "source = ? AND due_at <= ? AND (lease_until IS NULL OR lease_until < ?)"
    ids = column(f"SELECT id FROM awaited_streams WHERE {where} ORDER BY due_at, id LIMIT {AT_ONCE}", source, now, now)
    if not ids:
        return []
    sql = (
        f"UPDATE awaited_streams SET lease_token = ?, lease_until = ? WHERE {where} AND id IN ({marks(ids)}) "
        f"RETURNING {columns(AwaitedStream)}"
    )
    return fetch_all(AwaitedStream, sql, new_token(), now + LEASE_SECONDS, source, now, now, *ids)


def remove(row: AwaitedStream) -> bool:
    """False: the lease was lost, and its new holder settles the row."""
    return bool(changed("DELETE FROM awaited_streams WHERE id = ? AND lease_token = ?", row.id, row.lease_token))


def postpone(row: AwaitedStream, due_at: float, *, scheduled_at: float | None, misses: int) -> None:
    sql = (
        "UPDATE awaited_streams SET due_at = ?, scheduled_at = ?, misses = ?, lease_token = NULL, lease_until = NULL "
        "WHERE id = ? AND lease_token = ?"
    )
    run(sql, due_at, scheduled_at, misses, row.id, row.lease_token)


def postpone_all(rows: Sequence[AwaitedStream], due_at: float) -> None:
    for row in rows:
        postpone(row, due_at, scheduled_at=row.scheduled_at, misses=row.misses)
