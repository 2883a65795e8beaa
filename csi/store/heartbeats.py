"""Heartbeats of processes, and the periods without any, for health checks in other processes."""

import os
from dataclasses import dataclass

from csi.store.db import columns, fetch, fetch_one, run, value

WORKER = "worker"
"""The name under which the worker writes its heartbeat."""

NOTIFIER = "notifier"
"""The thread of the worker that evaluates alerts."""
SIDECAR = "sidecar"

GAP_SECONDS = 30.0
"""A process without a heartbeat for longer was down. A restart takes less."""

KEPT_SECONDS = 400 * 86_400.0


@dataclass(frozen=True)
class LastHeartbeat:
    """The last heartbeat of a process, and when the process started."""

    beat_at: float
    started_at: float
    queued: int | None = None
    """Tasks waiting in its queue; None: not measured."""
    clock_json: str | None = None
    """Its clock measurements (csi.pipeline.clock_check)."""
    pid: int | None = None
    stall_json: str | None = None
    """Why it makes no progress, and which of its threads hang (csi.status.worker)."""
    address: str | None = None
    """Where it listens; None: nowhere, or not known."""


@dataclass(frozen=True)
class Attendance:
    """The downtimes of a process since a time. `since` None: it never had a heartbeat."""

    since: float | None
    gaps: tuple[tuple[float, float], ...] = ()

    @property
    def down_seconds(self) -> float:
        return sum((end - begin for begin, end in self.gaps), 0.0)


def write(
    name: str,
    now: float,
    started_at: float,
    *,
    queued: int | None = None,
    clock_json: str | None = None,
    address: str | None = None,
) -> None:
    sql = """
        INSERT INTO heartbeats (name, first_beat_at, beat_at, started_at, pid, queued, clock_json, address)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET beat_at = excluded.beat_at,
            started_at = excluded.started_at, pid = excluded.pid, queued = excluded.queued,
            clock_json = excluded.clock_json, address = excluded.address
    """
    run(sql, name, now, now, started_at, os.getpid(), queued, clock_json, address)


def note_stall(name: str, stall_json: str | None) -> None:
    """Why this process makes no progress; None: it does. This is no heartbeat."""
    run("UPDATE heartbeats SET stall_json = ? WHERE name = ?", stall_json, name)


def note_gap(name: str, now: float) -> bool:
    """Called before a heartbeat: record a downtime when the last heartbeat is more than GAP_SECONDS ago."""
    run("UPDATE heartbeats SET first_beat_at = beat_at WHERE name = ? AND first_beat_at IS NULL", name)
    found = latest(name)
    if found is None or now - found.beat_at <= GAP_SECONDS:
        return False
    run("DELETE FROM downtimes WHERE ended_at < ?", now - KEPT_SECONDS)
    run("INSERT INTO downtimes (name, began_at, ended_at) VALUES (?, ?, ?)", name, found.beat_at, now)
    return True


def last_downtime_end(name: str) -> float | None:
    """When this process was back the last time, from an end or a suspended machine; None: it has had no downtime."""
    found: float | None = value("SELECT MAX(ended_at) FROM downtimes WHERE name = ?", name)
    return found


def attendance(name: str, since: float, now: float) -> Attendance:
    """Downtimes between `since` and now, clipped to that period; a current one is included."""
    known = fetch("SELECT COALESCE(first_beat_at, beat_at), beat_at FROM heartbeats WHERE name = ?", name)
    if not known:
        return Attendance(None)
    first, last = known[0]
    rows = fetch("SELECT began_at, ended_at FROM downtimes WHERE name = ? AND ended_at > ? ORDER BY id", name, since)
    begin = max(first, since)
    rows += [(last, now)] if now - last > GAP_SECONDS else []
    return Attendance(begin, tuple((max(start, begin), min(end, now)) for start, end in rows if end > begin))


def latest(name: str) -> LastHeartbeat | None:
    """None: no process of that name was ever seen here."""
    return fetch_one(LastHeartbeat, f"SELECT {columns(LastHeartbeat)} FROM heartbeats WHERE name = ?", name)


def last_beat(name: str) -> float | None:
    """The time of the last heartbeat; None: there was none."""
    heartbeat = latest(name)
    return heartbeat.beat_at if heartbeat else None
