"""The worker's signs of life."""

from csi.processing.store.db import one, run


def beat(name: str, now: float) -> None:
    sql = """INSERT INTO heartbeats (name, beat_at) VALUES (?, ?)
             ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at"""
    run(sql, name, now)


def last_beat(name: str) -> float | None:
    found = one("SELECT beat_at FROM heartbeats WHERE name = ?", name)
    return float(found[0]) if found else None
