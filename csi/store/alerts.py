"""Alerts as rows: the operator is notified once when an alert has lasted and once when it is over, also across restarts
and with several workers.

An alert that is resolved and fires again soon after is the same incident: its row is reopened, and the seconds that it
failed add up. So a receiver that recovers for a moment every few minutes is reported, once.
"""

from dataclasses import dataclass

from csi.store.db import changed, fetch, run

KEPT_SECONDS = 90 * 86_400.0
SAME_INCIDENT_SECONDS = 900.0
"""An alert that fires again within this time after it was resolved continues its row."""
OVER_SECONDS = 30.0
OVER_AFTER_RECOVERIES = 300.0
"""How long an alert stays resolved before the operator is told that it is over: longer where it came back before."""


@dataclass(frozen=True)
class StoredAlert:
    """An alert as it was when its row was read. `resolved_at` None: it is firing."""

    id: int
    name: str
    subject: str
    severity: str
    text: str
    remedy: str
    since: float
    firing_at: float
    """When it began to fire without an interruption."""
    failing_seconds: float
    """How long it fired before `firing_at`, and in all once it is resolved."""
    recoveries: int
    events: int
    """The most events that were affected at once."""
    notified_at: float | None
    resolved_at: float | None
    resolved_notified_at: float | None


_COLUMNS = ", ".join(StoredAlert.__dataclass_fields__)


def fire(
    name: str,
    subject: str,
    *,
    severity: str,
    text: str,
    remedy: str,
    since: float,
    delay: float,
    events: int,
    now: float,
) -> bool:
    """Record that the alert is firing, with these texts. True: it was not firing before.

    `delay`: how long it fires before the operator is notified. A unique index allows one firing alert of a name and
    subject, so of two workers only one gets True.
    """
    texts = (severity, text, remedy, delay, events, events)
    update = (
        "UPDATE alerts SET severity = ?, text = ?, remedy = ?, delay = ?, "
        "events = CASE WHEN events > ? THEN events ELSE ? END"
    )
    place = "WHERE name = ? AND subject = ?"
    if changed(f"{update} {place} AND resolved_at IS NULL", *texts, name, subject):
        return False
    reopen = f"{update}, resolved_at = NULL, firing_at = ?, recoveries = recoveries + 1, next_notify_at = 0 {place}"
    recent = "resolved_notified_at IS NULL AND resolved_at > ?"
    if changed(f"{reopen} AND {recent}", *texts, now, name, subject, now - SAME_INCIDENT_SECONDS):
        return True
    columns = "name, subject, severity, text, remedy, delay, events, since, firing_at"
    sql = f"INSERT INTO alerts ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    return bool(changed(sql, name, subject, severity, text, remedy, delay, events, since, since))


def resolve(alert: StoredAlert, now: float) -> bool:
    """Record that the alert is resolved. False: another worker has done so."""
    sql = (
        "UPDATE alerts SET resolved_at = ?, failing_seconds = failing_seconds + ?, next_notify_at = 0 "
        "WHERE id = ? AND resolved_at IS NULL"
    )
    return bool(changed(sql, now, max(now - alert.firing_at, 0.0), alert.id))


def firing() -> list[StoredAlert]:
    """Oldest first."""
    return _select("resolved_at IS NULL ORDER BY id")


def latest(limit: int) -> list[StoredAlert]:
    """Newest first, without those that were over before the operator had to know."""
    return _select("(resolved_at IS NULL OR notified_at IS NOT NULL) ORDER BY id DESC LIMIT ?", limit)


def claim_unnotified(now: float, hold_seconds: float) -> list[StoredAlert]:
    """Alerts to notify the operator of now: firing for longer than their delay, or over.

    One that was resolved before its notification could be sent is returned, too: the operator learns of it late. Each
    is returned to one worker only, and again after `hold_seconds` unless it was marked as notified: a worker that dies
    before it sends the message delays it by that time.
    """
    begun = "resolved_at IS NULL AND notified_at IS NULL AND failing_seconds + (? - firing_at) >= delay"
    over = (
        "resolved_at IS NOT NULL AND resolved_notified_at IS NULL "
        "AND (notified_at IS NOT NULL OR failing_seconds >= delay) "
        "AND resolved_at + CASE WHEN recoveries > 0 THEN ? ELSE ? END <= ?"
    )
    unnotified = f"next_notify_at <= ? AND (({begun}) OR ({over})) ORDER BY id"
    found = _select(unnotified, now, now, OVER_AFTER_RECOVERIES, OVER_SECONDS, now)
    claim = "UPDATE alerts SET next_notify_at = ? WHERE id = ? AND next_notify_at <= ?"
    return [alert for alert in found if changed(claim, now + hold_seconds, alert.id, now)]


def mark_notified(alert: StoredAlert, now: float) -> None:
    """The operator has the message for the state that `alert` has. One that was over at once needs no second one."""
    over = ", resolved_notified_at = ?" if alert.resolved_at is not None else ""
    times = (now,) if alert.resolved_at is None else (now, now)
    sql = f"UPDATE alerts SET notified_at = COALESCE(notified_at, ?){over}, next_notify_at = 0 WHERE id = ?"
    run(sql, *times, alert.id)


def delete_old(now: float) -> int:
    """Also those that were over before the operator had to know, once they cannot come back as the same incident."""
    unknown = "notified_at IS NULL AND failing_seconds < delay"
    sql = f"DELETE FROM alerts WHERE resolved_at < ? OR (resolved_at < ? AND {unknown})"
    return changed(sql, now - KEPT_SECONDS, now - SAME_INCIDENT_SECONDS)


def _select(rest: str, *values: object) -> list[StoredAlert]:
    return [StoredAlert(*row) for row in fetch(f"SELECT {_COLUMNS} FROM alerts WHERE {rest}", *values)]
