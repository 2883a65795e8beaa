"""Jobs that failed for good, and what people do about them."""

import json
from dataclasses import dataclass
from typing import Any

from csi.processing.documents import DeadLetterJobDocument
from csi.processing.store.db import changed, dump, fetch, number, one, run

OPEN = "('pending', 'investigating')"


@dataclass(frozen=True)
class Letter:
    """A dead letter and how often it was tried again by itself."""

    doc: DeadLetterJobDocument
    rounds: int = 0


def find(job_id: str) -> Letter | None:
    row = one("SELECT doc, rounds FROM dead_jobs WHERE job_id = ?", job_id)
    return _letter(row) if row else None


def put(letter: Letter, *, retry_after: float | None, moved_at: float) -> None:
    """A job has one letter: one that dies again finds its own, with everything that was noted."""
    doc = letter.doc
    sql = """INSERT INTO dead_jobs (job_id, status, failure_type, can_retry, retry_after, rounds, moved_at, doc)
             VALUES (?,?,?,?,?,?,?,?)
             ON CONFLICT (job_id) DO UPDATE SET status = excluded.status, failure_type = excluded.failure_type,
               can_retry = excluded.can_retry, retry_after = excluded.retry_after, rounds = excluded.rounds,
               moved_at = excluded.moved_at, doc = excluded.doc"""
    what = (doc.job_id, doc.dlq_status, doc.failure_type, doc.can_retry, retry_after, letter.rounds)
    run(sql, *what, moved_at, dump(doc.shape()))


def change(letter: Letter, *, rounds: int | None = None, **fields: Any) -> Letter:
    """Resolution by a person, or by a retry. Nothing is changed when the letter moved on meanwhile."""
    doc = letter.doc.changed(**fields)
    made = letter.rounds if rounds is None else rounds
    sql = "UPDATE dead_jobs SET status = ?, can_retry = ?, rounds = ?, doc = ? WHERE job_id = ? AND status = ?"
    if changed(sql, doc.dlq_status, doc.can_retry, made, dump(doc.shape()), doc.job_id, letter.doc.dlq_status) != 1:
        return letter
    return Letter(doc, made)


def search(*, status: str | None, limit: int) -> list[Letter]:
    where, params = (f"status IN {OPEN}", []) if status is None else ("status = ?", [status])
    if status == "all":
        where, params = "1 = 1", []
    sql = f"SELECT doc, rounds FROM dead_jobs WHERE {where} ORDER BY moved_at DESC, job_id LIMIT ?"
    return [_letter(row) for row in fetch(sql, *params, limit)]


def retriable(now: float, *, rounds: int, limit: int) -> list[str]:
    """Jobs that died of somebody else's outage and whose time has come."""
    sql = """SELECT job_id FROM dead_jobs WHERE status = 'pending' AND can_retry AND rounds < ?
             AND failure_type IN ('max_retries', 'quota_exceeded') AND retry_after <= ? ORDER BY moved_at LIMIT ?"""
    return [row[0] for row in fetch(sql, rounds, now, limit)]


def open_count() -> int:
    return number(f"SELECT count(*) FROM dead_jobs WHERE status IN {OPEN}")


def moved_between(start: float, end: float) -> int:
    """Videos that died in that time. A job has one letter and may die again: each of its deaths is in the audit log."""
    sql = "SELECT count(DISTINCT resource_id) FROM audit_logs WHERE action = 'dead_letter' AND at >= ? AND at < ?"
    return number(sql, start, end)


def _letter(row: tuple[Any, ...]) -> Letter:
    return Letter(DeadLetterJobDocument.model_validate(json.loads(row[0])), int(row[1]))
