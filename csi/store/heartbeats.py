"""Heartbeats of processes, and the periods without any, for health checks in other processes."""

import os
from dataclasses import dataclass

from csi.store.db import fetch, run
from csi.store.models import Heartbeat

WORKER = "worker"
"""The name under which the worker writes its heartbeat."""

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


@dataclass(frozen=True)
class Attendance:
    """The downtimes of a process since a time. `since` None: it never had a heartbeat."""

    since: float | None
    gaps: tuple[tuple[float, float], ...] = ()

    @property
    def down_seconds(self) -> float:
        return sum((end - begin for begin, end in self.gaps), 0.0)


def beat(name: str, now: float, started_at: float, *, queued: int | None = None, clock_json: str | None = None) -> None:
    measured = {"queued": queued, "clock_json": clock_json}
    values = {"beat_at": now, "started_at": started_at, "pid": os.getpid(), **measured}
    Heartbeat.insert(name=name, first_beat_at=now, **values).on_conflict(
        conflict_target=[Heartbeat.name],
        update={getattr(Heartbeat, key): value for key, value in values.items()},
    ).execute()


def note_gap(name: str, now: float) -> bool:
    """Called before a heartbeat: record a downtime when the last heartbeat is more than GAP_SECONDS ago."""
    run("UPDATE heartbeats SET first_beat_at = beat_at WHERE name = ? AND first_beat_at IS NULL", name)
    found = latest(name)
    if found is None or now - found.beat_at <= GAP_SECONDS:
        return False
    run("DELETE FROM downtimes WHERE ended_at < ?", now - KEPT_SECONDS)
    run("INSERT INTO downtimes (name, began_at, ended_at) VALUES (?, ?, ?)", name, found.beat_at, now)
    return True


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
    row = Heartbeat.get_or_none(name=name)
    return LastHeartbeat(row.beat_at, row.started_at, row.queued, row.clock_json) if row else None


def last_beat(name: str) -> float | None:
    """The time of the last heartbeat; None: there was none."""
    beat = latest(name)
    return beat.beat_at if beat else None
