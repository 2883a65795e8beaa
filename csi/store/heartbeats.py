"""Signs of life of the worker, for health checks in other processes."""

import os
from dataclasses import dataclass

from csi.store.models import Heartbeat


@dataclass(frozen=True)
class Beat:
    """When a process last gave a sign of life, and when it began."""

    beat_at: float
    started_at: float
    queued: int | None = None
    """Wake-ups that waited in its queue; None: it did not say."""


def beat(name: str, now: float, started_at: float, *, queued: int | None = None) -> None:
    values = {"beat_at": now, "started_at": started_at, "pid": os.getpid(), "queued": queued}
    Heartbeat.insert(name=name, **values).on_conflict(
        conflict_target=[Heartbeat.name],
        update={getattr(Heartbeat, key): value for key, value in values.items()},
    ).execute()


def last_beat(name: str) -> float | None:
    row = Heartbeat.get_or_none(name=name)
    return row.beat_at if row else None


def latest(name: str) -> Beat | None:
    """None: no process of that name was ever seen here."""
    row = Heartbeat.get_or_none(name=name)
    return Beat(row.beat_at, row.started_at, row.queued) if row else None
