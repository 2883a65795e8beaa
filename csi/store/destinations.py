"""What is known of a receiver, kept over restarts: breaker, pause, last success, accepted JSON form."""

from dataclasses import dataclass
from typing import Any

from csi.store.db import fetch, run

DEFAULT = "default"

_COLUMNS = (
    "destination, breaker, reason, opened_at, canary, probes, next_probe_at, paused_until, last_success_at, "
    "last_failure_at, last_error, form, paused_at, held, held_at, ramp"
)


@dataclass(frozen=True)
class Endpoint:
    """A receiver's row as it was when it was read."""

    destination: str
    breaker: str = "closed"
    reason: str | None = None
    opened_at: float | None = None
    canary: int | None = None
    probes: int = 0
    next_probe_at: float | None = None
    paused_until: float | None = None
    last_success_at: float | None = None
    last_failure_at: float | None = None
    last_error: str | None = None
    form: str | None = None
    paused_at: float | None = None
    """When the receiver asked for its pause."""
    held: str | None = None
    """Why delivery was paused by command; None: it was not."""
    held_at: float | None = None
    ramp: int = 0
    """Requests at once while recovery ramps up; 0: as many as configured."""


def get(destination: str = DEFAULT) -> Endpoint:
    """What is known; a receiver that nothing is known of works."""
    return find(destination) or Endpoint(destination)


def find(destination: str = DEFAULT) -> Endpoint | None:
    """None when nothing was ever sent to it."""
    found = fetch(f"SELECT {_COLUMNS} FROM endpoints WHERE destination = ?", destination)
    return Endpoint(*found[0]) if found else None


def change(destination: str, **changes: Any) -> None:
    names = list(changes)
    run(
        f"INSERT INTO endpoints (destination, {', '.join(names)}) VALUES (?, {', '.join('?' * len(names))}) "
        f"ON CONFLICT (destination) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}",
        destination,
        *changes.values(),
    )


def failing_batches(endpoint: Endpoint) -> int:
    """How many different batches have failed since the last success."""
    sql = (
        "SELECT COUNT(DISTINCT batch_id) FROM delivery_attempts "
        "WHERE destination = ? AND started_at > ? AND outcome = 'transient'"
    )
    return int(fetch(sql, endpoint.destination, endpoint.last_success_at or 0)[0][0])


def refused_alone(endpoint: Endpoint) -> int:
    """How many events were refused by themselves since one was taken. One that was sent again and is refused again says
    nothing about the receiver: it has taken others meanwhile."""
    sql = (
        "SELECT COUNT(DISTINCT a.batch_id) FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id "
        "JOIN batch_events be ON be.batch_id = b.id JOIN events e ON e.id = be.event_pk "
        "WHERE a.destination = ? AND a.started_at > ? AND a.outcome = 'refused' AND b.size = 1 AND NOT EXISTS ("
        "SELECT 1 FROM dead_letter d WHERE d.event_id = e.event_id AND d.destination = a.destination AND d.rounds > 0)"
    )
    return int(fetch(sql, endpoint.destination, endpoint.last_success_at or 0)[0][0])
