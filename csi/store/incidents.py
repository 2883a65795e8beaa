"""Incidents: what happened once and stays a problem until the operator acknowledges it, such as missed items."""

from dataclasses import dataclass

from csi.store.db import changed, fetch

SHOWN = 100


@dataclass(frozen=True)
class Incident:
    """One row that is not acknowledged. `problem` is an id of csi.status.problems."""

    id: int
    problem: str
    subject: str
    what: str
    cause: str | None
    effect: str
    remedy: str
    since: float
    events: int | None


_COLUMNS = ", ".join(Incident.__dataclass_fields__)


def report(
    problem: str,
    subject: str,
    *,
    what: str,
    effect: str,
    remedy: str,
    now: float,
    cause: str | None = None,
    events: int | None = None,
) -> None:
    """Record an incident. While one of this problem and subject is not acknowledged, its texts are replaced and its
    events added up; `since` stays."""
    sql = (
        "UPDATE incidents SET what = ?, cause = ?, effect = ?, remedy = ?, events = COALESCE(events, 0) + ? "
        "WHERE problem = ? AND subject = ? AND acknowledged_at IS NULL"
    )
    if changed(sql, what, cause, effect, remedy, events or 0, problem, subject):
        return
    columns = "problem, subject, what, cause, effect, remedy, since, events"
    sql = f"INSERT INTO incidents ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    changed(sql, problem, subject, what, cause, effect, remedy, now, events)


def close(problem: str, subject: str, by: str, now: float) -> bool:
    """End the incident of this problem and subject: its reason is gone. False: there is none."""
    sql = (
        "UPDATE incidents SET acknowledged_at = ?, acknowledged_by = ? "
        "WHERE problem = ? AND subject = ? AND acknowledged_at IS NULL"
    )
    return changed(sql, now, by, problem, subject) > 0


def unacknowledged(limit: int = SHOWN) -> list[Incident]:
    """Oldest first. For display: what changes incidents does not search this list."""
    sql = f"SELECT {_COLUMNS} FROM incidents WHERE acknowledged_at IS NULL ORDER BY id LIMIT ?"
    return [Incident(*row) for row in fetch(sql, limit)]


def unacknowledged_of(problem: str) -> list[Incident]:
    """All of this problem, one for each subject."""
    sql = f"SELECT {_COLUMNS} FROM incidents WHERE problem = ? AND acknowledged_at IS NULL ORDER BY id"
    return [Incident(*row) for row in fetch(sql, problem)]


def acknowledge(incident_id: int, by: str, now: float) -> Incident | None:
    """None: there is none of this number that is not acknowledged."""
    sql = (
        "UPDATE incidents SET acknowledged_at = ?, acknowledged_by = ? "
        f"WHERE id = ? AND acknowledged_at IS NULL RETURNING {_COLUMNS}"
    )
    return next((Incident(*row) for row in fetch(sql, now, by, incident_id)), None)


def acknowledge_all(by: str, now: float) -> list[Incident]:
    """Those that were acknowledged, oldest first."""
    sql = (
        "UPDATE incidents SET acknowledged_at = ?, acknowledged_by = ? "
        f"WHERE acknowledged_at IS NULL RETURNING {_COLUMNS}"
    )
    return sorted((Incident(*row) for row in fetch(sql, now, by)), key=lambda one: one.id)
