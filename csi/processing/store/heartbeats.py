"""The heartbeat of the worker."""

from csi.processing.store.db import one, run


def record_heartbeat(name: str, now: float) -> None:
    sql = """INSERT INTO heartbeats (name, beat_at) VALUES (?, ?)
             ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at"""
    run(sql, name, now)


def last_heartbeat(name: str) -> float | None:
    row = one("SELECT beat_at FROM heartbeats WHERE name = ?", name)
    return float(row[0]) if row else None
