"""Notifications that were sent or could not be sent: one row for a message and a target. The newest rows are kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import changed, columns, fetch, fetch_all, fetch_one, marks, number, run

KEPT = 1_000


@dataclass(frozen=True)
class Notification:
    """One message for one target. `message` is the same for all targets.

    `result`: `sent`, `failed` (the last attempt), or `dropped`: it is not tried again, because a later message of its
    alert says the same, or because it is too old. `next_attempt_at` None: this row alone causes no further attempt.
    """

    id: int
    message: str
    target: str
    kind: str
    severity: str
    title: str
    body: str
    result: str
    error: str | None
    attempts: int
    first_attempt_at: float
    last_attempt_at: float
    next_attempt_at: float | None
    sent_at: float | None


@dataclass(frozen=True)
class FailingTarget:
    """A target that did not accept the last message it was sent."""

    target: str
    since: float
    messages: int


def record(
    message: str, target: str, *, kind: str, severity: str, title: str, body: str, error: str | None, now: float
) -> None:
    """Record an attempt: it failed with `error`, or the target accepted the message."""
    result, sent_at = ("sent", now) if error is None else ("failed", None)
    names = "message, target, kind, severity, title, body, result, error, sent_at, last_attempt_at, first_attempt_at"
    sql = f"""
        INSERT INTO notifications ({names}, attempts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
        ON CONFLICT (message, target) DO UPDATE SET
            severity = excluded.severity, title = excluded.title, body = excluded.body, result = excluded.result,
            error = excluded.error, sent_at = excluded.sent_at, last_attempt_at = excluded.last_attempt_at,
            attempts = notifications.attempts + 1, next_attempt_at = NULL
        RETURNING id
    """
    newest = number(sql, message, target, kind, severity, title, body, result, error, sent_at, now, now)
    run("DELETE FROM notifications WHERE id <= ?", newest - KEPT)


def has(message: str, target: str) -> bool:
    """Whether the target accepted the message."""
    sql = "SELECT 1 FROM notifications WHERE message = ? AND target = ? AND result = 'sent'"
    return bool(fetch(sql, message, target))


def retry_failed(message: str, at: float) -> None:
    """Try this message again at that time, for each target that has not accepted it."""
    run("UPDATE notifications SET next_attempt_at = ? WHERE message = ? AND result = 'failed'", at, message)


def drop(message: str, target: str) -> None:
    """Do not try it again; nothing happens where the target has it."""
    sql = (
        "UPDATE notifications SET result = 'dropped', next_attempt_at = NULL "
        "WHERE message = ? AND target = ? AND result = 'failed'"
    )
    run(sql, message, target)


def waits(target: str) -> bool:
    """Whether the target has messages that are tried again: a new one waits behind them."""
    return bool(fetch("SELECT 1 FROM notifications WHERE target = ? AND next_attempt_at IS NOT NULL LIMIT 1", target))


def claim_oldest(target: str, now: float, hold_seconds: float) -> Notification | None:
    """The oldest message that is tried again for this target. None: there is none, or it is not due, or another worker
    is sending it. Younger ones wait for it, so that a target gets its messages in order."""
    sql = f"SELECT {columns(Notification)} FROM notifications WHERE target = ? AND next_attempt_at IS NOT NULL"
    oldest = fetch_one(Notification, f"{sql} ORDER BY id LIMIT 1", target)
    if oldest is None:
        return None
    claim = "UPDATE notifications SET next_attempt_at = ? WHERE id = ? AND next_attempt_at <= ?"
    return oldest if changed(claim, now + hold_seconds, oldest.id, now) else None


def make_due(target: str, now: float) -> None:
    """The target accepts messages again: those that wait are sent now."""
    run("UPDATE notifications SET next_attempt_at = ? WHERE target = ? AND next_attempt_at > ?", now, target, now)


def drop_older(before: float) -> int:
    """Do not try messages again that were first tried before this time."""
    sql = "UPDATE notifications SET result = 'dropped', next_attempt_at = NULL WHERE next_attempt_at IS NOT NULL"
    return changed(f"{sql} AND first_attempt_at < ?", before)


def latest(limit: int) -> list[Notification]:
    """Newest attempt first."""
    order = "ORDER BY last_attempt_at DESC, id DESC LIMIT ?"
    return fetch_all(Notification, f"SELECT {columns(Notification)} FROM notifications {order}", limit)


def failing(targets: Sequence[str]) -> list[FailingTarget]:
    """Those of the targets that accepted nothing since an attempt failed."""
    if not targets:
        return []
    accepted = (
        f"SELECT target, MAX(sent_at) AS at FROM notifications WHERE target IN ({marks(targets)}) GROUP BY target"
    )
    sql = f"""
        SELECT n.target, MIN(n.first_attempt_at), MAX(a.at), COUNT(*)
        FROM notifications n JOIN ({accepted}) a ON a.target = n.target
        WHERE n.result <> 'sent' AND n.last_attempt_at > COALESCE(a.at, 0) GROUP BY n.target ORDER BY n.target
    """
    return [FailingTarget(name, max(first, sent or 0.0), count) for name, first, sent, count in fetch(sql, *targets)]
