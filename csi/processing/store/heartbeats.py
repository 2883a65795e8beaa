"""The heartbeat of the worker, and whether it can read the receiver's database."""

from dataclasses import dataclass

from csi.processing.store.db import one, run


@dataclass(frozen=True)
class WorkerHeartbeat:
    """`intake_error` None: the worker reads the receiver's database."""

    beat_at: float
    intake_error: str | None = None
    intake_failing_since: float | None = None


def record(name: str, now: float, intake_error: str | None = None) -> None:
    since = None if intake_error is None else now
    sql = """INSERT INTO heartbeats (name, beat_at, intake_error, intake_failing_since) VALUES (?, ?, ?, ?)
             ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at, intake_error = excluded.intake_error,
             intake_failing_since = CASE WHEN excluded.intake_error IS NULL THEN NULL
                 ELSE COALESCE(heartbeats.intake_failing_since, excluded.intake_failing_since) END"""
    run(sql, name, now, intake_error, since)


def latest(name: str) -> WorkerHeartbeat | None:
    row = one("SELECT beat_at, intake_error, intake_failing_since FROM heartbeats WHERE name = ?", name)
    return WorkerHeartbeat(*row) if row else None
