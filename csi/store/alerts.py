"""Alerts as rows: the operator is notified once when an alert has lasted and once when it is resolved, also across
restarts and with several workers."""

from dataclasses import dataclass

from csi.store.db import changed, fetch, run

KEPT_SECONDS = 90 * 86_400.0


@dataclass(frozen=True)
class StoredAlert:
    """An alert as it was when its row was read. `resolved_at` None: it is firing."""

    id: int
    name: str
    subject: str
    text: str
    since: float
    notified_at: float | None
    resolved_at: float | None
    resolved_notified_at: float | None


_COLUMNS = ", ".join(StoredAlert.__dataclass_fields__)


def fire(name: str, subject: str, text: str, now: float) -> bool:
    """Record that the alert is firing, with this text. True: it was not firing before.

    A unique index allows one firing alert of a name and subject, so of two workers only one gets True.
    """
    if changed(
        "UPDATE alerts SET text = ? WHERE name = ? AND subject = ? AND resolved_at IS NULL", text, name, subject
    ):
        return False
    sql = "INSERT INTO alerts (name, subject, text, since) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    return bool(changed(sql, name, subject, text, now))


def resolve(alert: StoredAlert, now: float) -> bool:
    """Record that the alert is over; delete it if the operator was never notified of it. False: another worker has
    resolved it."""
    if alert.notified_at is None:
        return bool(changed("DELETE FROM alerts WHERE id = ? AND notified_at IS NULL", alert.id))
    sql = "UPDATE alerts SET resolved_at = ?, next_notify_at = 0 WHERE id = ? AND resolved_at IS NULL"
    return bool(changed(sql, now, alert.id))


def firing() -> list[StoredAlert]:
    """Oldest first."""
    return _select("resolved_at IS NULL ORDER BY id")


def latest(limit: int) -> list[StoredAlert]:
    return _select("1 = 1 ORDER BY id DESC LIMIT ?", limit)


def claim_unnotified(now: float, since: float, hold_seconds: float) -> list[StoredAlert]:
    """Alerts to notify the operator of now: firing since `since` or longer, or resolved.

    Each is returned to one worker only, and again after `hold_seconds` unless it was marked as notified: a worker that
    dies before it sends the message delays it by that time.
    """
    unnotified = (
        "next_notify_at <= ? AND ((notified_at IS NULL AND resolved_at IS NULL AND since <= ?) "
        "OR (resolved_at IS NOT NULL AND resolved_notified_at IS NULL)) ORDER BY id"
    )
    claim = "UPDATE alerts SET next_notify_at = ? WHERE id = ? AND next_notify_at <= ?"
    return [alert for alert in _select(unnotified, now, since) if changed(claim, now + hold_seconds, alert.id, now)]


def mark_notified(alert: StoredAlert, now: float) -> None:
    column = "notified_at" if alert.resolved_at is None else "resolved_notified_at"
    run(f"UPDATE alerts SET {column} = ?, next_notify_at = 0 WHERE id = ?", now, alert.id)


def delete_old(now: float) -> int:
    return changed("DELETE FROM alerts WHERE resolved_at < ?", now - KEPT_SECONDS)


def _select(rest: str, *values: object) -> list[StoredAlert]:
    return [StoredAlert(*row) for row in fetch(f"SELECT {_COLUMNS} FROM alerts WHERE {rest}", *values)]
