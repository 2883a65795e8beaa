"""Notices: lines for people, collected for a few minutes and sent as one notification."""

from dataclasses import dataclass

from csi.processing.store.db import changed, fetch, new_token, number, one

LEASE_SECONDS = 60.0


@dataclass(frozen=True)
class Notice:
    """One notice of a claimed set. `attempts` includes the current one."""

    id: int
    title: str
    body: str
    attempts: int


def add(subject: str, title: str, body: str, *, due_at: float, now: float) -> bool:
    """False when the subject has a notice already. A notice is due no later than those that wait already."""
    waiting = one("SELECT MIN(due_at) FROM notices WHERE state = 'waiting'")
    at = min(due_at, waiting[0]) if waiting and waiting[0] is not None else due_at
    sql = """INSERT INTO notices (subject, title, body, due_at, created_at) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (subject) DO NOTHING"""
    return changed(sql, subject, title, body, at, now) == 1


def replace(old: str, subject: str, title: str, body: str) -> bool:
    """Say `subject` in the place of a notice that was not sent yet, at its time. False when there is none."""
    sql = """UPDATE notices SET subject = ?, title = ?, body = ? WHERE subject = ? AND state = 'waiting'
             AND NOT EXISTS (SELECT 1 FROM notices WHERE subject = ?)"""
    return changed(sql, subject, title, body, old, subject) == 1


def is_due(now: float) -> bool:
    sql = """SELECT 1 FROM notices WHERE (state = 'waiting' AND due_at <= ?)
             OR (state = 'sending' AND lease_until < ?) LIMIT 1"""
    return one(sql, now, now) is not None


def claim(now: float, limit: int = 50) -> tuple[str, list[Notice]]:
    """Claim every waiting notice, due or not, once the first one is due. Returns the lease token and the notices."""
    if not is_due(now):
        return "", []
    token = new_token()
    due = """(SELECT id FROM notices WHERE state = 'waiting' OR (state = 'sending' AND lease_until < ?)
              ORDER BY id LIMIT ?)"""
    # The condition is repeated outside of the subquery: on PostgreSQL another worker may have claimed the row since.
    sql = f"""UPDATE notices SET state = 'sending', lease_token = ?, lease_until = ?, attempts = attempts + 1
              WHERE id IN {due} AND (state = 'waiting' OR lease_until < ?)"""
    changed(sql, token, now + LEASE_SECONDS, now, limit, now)
    rows = fetch("SELECT id, title, body, attempts FROM notices WHERE lease_token = ? ORDER BY id", token)
    return token, [Notice(*row) for row in rows]


def mark_sent(token: str, now: float) -> int:
    sql = "UPDATE notices SET state = 'sent', sent_at = ?, lease_token = NULL, lease_until = NULL WHERE lease_token = ?"
    return changed(sql, now, token)


def waiting_count() -> int:
    return number("SELECT count(*) FROM notices WHERE state IN ('waiting', 'sending')")
