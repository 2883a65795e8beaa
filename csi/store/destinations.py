"""One row per destination: circuit breaker, pauses, last success, accepted JSON form. Kept over restarts."""

from dataclasses import dataclass
from typing import Any

from csi.store.db import changed, columns, fetch_one, marks, number, run

DEFAULT = "default"


@dataclass(frozen=True)
class DestinationRow:
    """A destination's row as it was when it was read. csi.pipeline.destination_state says what it means."""

    destination: str
    circuit: str = "closed"
    """`closed` or `open`. Half-open is an open circuit whose next probe is due."""
    reason: str | None = None
    """Why the circuit is open."""
    opened_at: float | None = None
    canary: int | None = None
    """The one batch that keeps its retries while the circuit is open."""
    probes: int = 0
    """Probes sent since the circuit opened."""
    next_probe_at: float | None = None
    throttled_until: float | None = None
    """Until when the receiver throttles us (Retry-After)."""
    last_success_at: float | None = None
    last_failure_at: float | None = None
    last_error: str | None = None
    json_form: str | None = None
    """The canonical JSON form that the receiver verifies."""
    throttled_at: float | None = None
    """When the receiver began to throttle us."""
    paused_reason: str | None = None
    """The operator's reason for pausing delivery; None: not paused."""
    paused_at: float | None = None
    ramp: int = 0
    """Concurrent requests allowed while recovery ramps up; 0: as many as configured."""
    failing_since: float | None = None
    """The first failure after which nothing succeeded; None: the last request succeeded."""
    answered_at: float | None = None
    """When the receiver last answered as it should, be it to an empty batch; None: never."""
    test_requested_at: float | None = None
    """Since when a test is wanted: the worker started, or the configuration was reloaded."""
    tested_at: float | None = None
    """When the last test was sent."""
    certificate_expires_at: float | None = None
    """As seen in the last connection; None: no TLS, or not seen yet."""
    confirms_counts: bool | None = None
    """Whether its answers say how many events it accepted; None: not known."""

    @property
    def was_contacted(self) -> bool:
        """A request to it has ended, with or without success."""
        return any(at is not None for at in (self.answered_at, self.last_success_at, self.last_failure_at))


def get(destination: str = DEFAULT) -> DestinationRow:
    """The row, or an empty one for a destination that nothing was sent to yet."""
    sql = f"SELECT {columns(DestinationRow)} FROM destinations WHERE destination = ?"
    return fetch_one(DestinationRow, sql, destination) or DestinationRow(destination)


def change(destination: str, **changes: Any) -> None:
    """Write these columns. Production code calls csi.pipeline.destination_state.write, which owns the transitions."""
    sql = (
        f"INSERT INTO destinations (destination, {', '.join(changes)}) VALUES (?, {marks(list(changes))}) "
        f"ON CONFLICT (destination) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in changes)}"
    )
    run(sql, destination, *changes.values())


def request_test(destination: str, now: float) -> None:
    """A test is due. Kept until it has ended, also if the process ends before."""
    change(destination, test_requested_at=now)


def claim_test(row: DestinationRow, now: float) -> bool:
    """Record that a test is sent now. False: another worker sends it. The row must exist."""
    sql = "UPDATE destinations SET tested_at = ? WHERE destination = ? AND COALESCE(tested_at, 0) = ?"
    return changed(sql, now, row.destination, row.tested_at or 0.0) == 1


def failing_batches(row: DestinationRow) -> int:
    """How many different batches have failed since the last success."""
    sql = (
        "SELECT COUNT(DISTINCT batch_id) FROM delivery_attempts "
        "WHERE destination = ? AND started_at > ? AND outcome = 'transient'"
    )
    return number(sql, row.destination, row.last_success_at or 0)


def refused_alone(row: DestinationRow) -> int:
    """How many events were refused each on its own, alone or by a 207, since the last success. A replayed event that is
    refused again does not count: the receiver accepted others before."""
    sql = (
        "SELECT COUNT(DISTINCT e.id) FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id "
        "JOIN batch_events be ON be.batch_id = b.id JOIN events e ON e.id = be.event_pk "
        "WHERE a.destination = ? AND a.started_at > ? AND a.outcome = 'refused' "
        "AND (b.size = 1 OR a.status = 207) AND NOT EXISTS ("
        "SELECT 1 FROM dead_letter d WHERE d.event_id = e.event_id AND d.destination = a.destination AND d.rounds > 0)"
    )
    return number(sql, row.destination, row.last_success_at or 0)
