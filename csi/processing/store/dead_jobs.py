"""Jobs that failed for good, and how operators resolve them."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from csi import clock
from csi.processing.collection_models import DeadLetterJobDocument
from csi.processing.store.db import changed, dump, fetch, number, one, run

OPEN = "('pending', 'investigating')"
_UNHANDLED = f"status IN {OPEN} AND retried_at IS NULL"
"""Open, and not being retried now."""


@dataclass(frozen=True)
class DeadJob:
    """A dead letter. `rounds` counts its automatic retries. `retried_at`: its job runs again since then, and the dead
    letter is resolved when the job succeeds."""

    doc: DeadLetterJobDocument
    rounds: int = 0
    retried_at: float | None = None

    @property
    def state(self) -> str:
        return "retrying" if self.retried_at is not None else self.doc.dlq_status


def find(job_id: str) -> DeadJob | None:
    row = one("SELECT doc, rounds, retried_at FROM dead_jobs WHERE job_id = ?", job_id)
    return _dead_job(row) if row else None


def put(dead_job: DeadJob, *, retry_after: float | None, moved_at: float) -> None:
    """A job has one dead letter: when the job fails again, its row is replaced."""
    doc = dead_job.doc
    sql = """INSERT INTO dead_jobs (job_id, status, failure_type, can_retry, retry_after, rounds, moved_at, doc)
             VALUES (?,?,?,?,?,?,?,?)
             ON CONFLICT (job_id) DO UPDATE SET status = excluded.status, failure_type = excluded.failure_type,
               can_retry = excluded.can_retry, retry_after = excluded.retry_after, rounds = excluded.rounds,
               moved_at = excluded.moved_at, doc = excluded.doc, retried_at = NULL"""
    values = (doc.job_id, doc.dlq_status, doc.failure_type, doc.can_retry, retry_after, dead_job.rounds)
    run(sql, *values, moved_at, dump(doc.shape()))


def change(dead_job: DeadJob, *, rounds: int | None = None, retried_at: float | None = None, **fields: Any) -> DeadJob:
    """Change the document. Nothing changes when the status is no longer the one that the caller read."""
    doc = dead_job.doc.changed(**fields)
    rounds = dead_job.rounds if rounds is None else rounds
    retried_at = dead_job.retried_at if retried_at is None else retried_at
    sql = """UPDATE dead_jobs SET status = ?, can_retry = ?, rounds = ?, retried_at = ?, doc = ?
             WHERE job_id = ? AND status = ?"""
    values = (doc.dlq_status, doc.can_retry, rounds, retried_at, dump(doc.shape()), doc.job_id)
    if changed(sql, *values, dead_job.doc.dlq_status) != 1:
        return dead_job
    return DeadJob(doc, rounds, retried_at)


def resolve_retried(job_id: str, now: float, status: Literal["resolved", "abandoned"] = "resolved") -> None:
    """Its retry has ended: close the dead letter. Nothing changes where the job is not being retried."""
    found = find(job_id)
    if found is None or found.retried_at is None or found.doc.dlq_status not in ("pending", "investigating"):
        return
    change(found, dlq_status=status, resolved_at=clock.iso(now), can_retry=False)
    changed("UPDATE dead_jobs SET retried_at = NULL WHERE job_id = ?", job_id)


def search(*, status: str | None, limit: int) -> list[DeadJob]:
    """Newest first. `status` None means open, also those that are being retried; `all` means any."""
    where, params = (f"status IN {OPEN}", []) if status is None else ("status = ?", [status])
    if status == "all":
        where, params = "1 = 1", []
    sql = f"SELECT doc, rounds, retried_at FROM dead_jobs WHERE {where} ORDER BY moved_at DESC, job_id LIMIT ?"
    return [_dead_job(row) for row in fetch(sql, *params, limit)]


_RETRIED_LATER = """status = 'pending' AND retried_at IS NULL AND can_retry AND rounds < ?
    AND failure_type IN ('max_retries', 'quota_exceeded')"""


def retriable(now: float, *, rounds: int, limit: int) -> list[str]:
    """Jobs that failed because of an outage or missing credit, and whose automatic retry is due."""
    sql = f"SELECT job_id FROM dead_jobs WHERE {_RETRIED_LATER} AND retry_after <= ? ORDER BY moved_at LIMIT ?"
    return [row[0] for row in fetch(sql, rounds, now, limit)]


def for_a_person(*, rounds: int) -> int:
    """Open ones that no automatic retry takes up; `rounds`: how many of those there are, 0 without them."""
    return number(f"SELECT count(*) FROM dead_jobs WHERE {_UNHANDLED} AND NOT ({_RETRIED_LATER})", rounds)


def open_count() -> int:
    return number(f"SELECT count(*) FROM dead_jobs WHERE {_UNHANDLED}")


def open_by_cause() -> dict[str, int]:
    sql = f"SELECT failure_type, count(*) FROM dead_jobs WHERE {_UNHANDLED} GROUP BY 1"
    return {name: int(count) for name, count in fetch(sql)}


def open_since(moment: float) -> dict[str, tuple[int, float]]:
    """Open ones that died since then, by cause: how many, and when the first of them died."""
    sql = f"""SELECT failure_type, count(*), MIN(moved_at) FROM dead_jobs
              WHERE {_UNHANDLED} AND moved_at >= ? GROUP BY 1 ORDER BY 2 DESC, 1"""
    return {name: (int(count), float(first)) for name, count, first in fetch(sql, moment)}


def moved_between(start: float, end: float) -> int:
    """Videos with a job that died in that time, counted from the audit log: a row shows only the last death."""
    sql = "SELECT count(DISTINCT resource_id) FROM audit_logs WHERE action = 'dead_letter' AND at >= ? AND at < ?"
    return number(sql, start, end)


def _dead_job(row: tuple[Any, ...]) -> DeadJob:
    return DeadJob(DeadLetterJobDocument.model_validate(json.loads(row[0])), int(row[1]), row[2])
