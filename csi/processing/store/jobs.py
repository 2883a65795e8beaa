"""Jobs: claimed by a conditional update, held under a lease, settled in the transaction of their results."""

import json
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

from csi import clock
from csi.errors import CsiError
from csi.processing.collection_models import SummarizationJobDocument, TranscriptionJobDocument
from csi.processing.store.db import OWNER, changed, dump, fetch, marks, new_token, number, one

Collection = Literal["jobs/transcription", "jobs/summarization"]
JobDocument = TranscriptionJobDocument | SummarizationJobDocument

TRANSCRIPTION: Collection = "jobs/transcription"
SUMMARIZATION: Collection = "jobs/summarization"
MODELS: dict[str, type[TranscriptionJobDocument] | type[SummarizationJobDocument]] = {
    TRANSCRIPTION: TranscriptionJobDocument,
    SUMMARIZATION: SummarizationJobDocument,
}

LEASE_SECONDS = 60.0
"""A worker renews the leases of its jobs every few seconds; the leases of a dead worker expire."""

OPEN = "('queued', 'submitted', 'processing', 'retrying')"

_claimed: dict[str, str] = {}
"""The jobs that this process works on, with their lease tokens. Only these leases are renewed."""


class LostLease(CsiError):
    """Another worker holds this job now. Our result is dropped; that worker repeats the step."""


@dataclass(frozen=True)
class ProcessingJob:
    """One row. `work` is the state of an unfinished job: provider, phase, upload URL. `token` is set by a claim."""

    collection: Collection
    doc: JobDocument
    work: dict[str, Any] = field(default_factory=dict)
    provider_job_id: str | None = None
    attempts: int = 0
    api_tries: int = 0
    crashes: int = 0
    token: str = ""

    @property
    def id(self) -> str:
        return self.doc.job_id

    @property
    def video_id(self) -> str:
        return self.doc.video_id


_COLUMNS = "collection, doc, work, provider_job_id, attempts, api_tries, crashes"


def job_id(collection: Collection, video_id: str) -> str:
    return f"{'tr' if collection == TRANSCRIPTION else 'su'}_{video_id}"


def create(collection: Collection, doc: JobDocument, now: float) -> bool:
    """False when the video has a job of this collection already."""
    columns = "job_id, collection, video_id, status, doc, next_attempt_at, created_at, updated_at"
    sql = f"INSERT INTO jobs ({columns}) VALUES (?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING"
    text = dump(doc.shape())
    return changed(sql, doc.job_id, collection, doc.video_id, doc.status, text, now, now, now) == 1


def claim(job_id: str, now: float) -> ProcessingJob | None:
    """Claim the job. None when it is not due, not open, or claimed by another worker whose lease is valid.

    A token that is still set means that the last holder neither settled nor released the job: it crashed.
    """
    token = new_token()
    sql = f"""UPDATE jobs SET lease_token = ?, lease_until = ?,
                     crashes = crashes + CASE WHEN lease_token IS NULL THEN 0 ELSE 1 END
              WHERE job_id = ? AND status IN {OPEN} AND next_attempt_at <= ?
                AND (lease_until IS NULL OR lease_until < ?)"""
    if changed(sql, token, now + LEASE_SECONDS, job_id, now, now) != 1:
        return None
    _claimed[job_id] = token
    found = find(job_id)
    return replace(found, token=token) if found else None


def find(job_id: str) -> ProcessingJob | None:
    row = one(f"SELECT {_COLUMNS} FROM jobs WHERE job_id = ?", job_id)
    return _job(row) if row else None


def reread(job: ProcessingJob) -> ProcessingJob:
    """The current row under the same claim: steps commit parts of their work after the claim."""
    found = find(job.id)
    if found is None:
        raise LostLease(f"job {job.id} no longer exists")
    return replace(found, token=job.token)


def of_video(video_id: str) -> list[ProcessingJob]:
    sql = f"SELECT {_COLUMNS} FROM jobs WHERE video_id = ? ORDER BY created_at, job_id"
    return [_job(row) for row in fetch(sql, video_id)]


def update(
    job: ProcessingJob,
    now: float,
    *,
    work: dict[str, Any] | None = None,
    provider_job_id: str | None = None,
    **fields: Any,
) -> ProcessingJob:
    """Commit progress in the middle of a step; the claim stays. LostLease when another worker has the lease."""
    doc = job.doc.changed(updated_at=clock.iso(now), **fields)
    job = replace(job, doc=doc, work={**job.work, **(work or {})})
    job = replace(job, provider_job_id=provider_job_id or job.provider_job_id)
    sql = """UPDATE jobs SET status = ?, doc = ?, work = ?, provider_job_id = ?, updated_at = ?
             WHERE job_id = ? AND lease_token = ?"""
    if changed(sql, doc.status, dump(doc.shape()), dump(job.work), job.provider_job_id, now, job.id, job.token) != 1:
        raise LostLease(f"job {job.id} is held by another worker")
    return job


def settle(
    job: ProcessingJob,
    now: float,
    *,
    next_at: float | None = None,
    attempts: int | None = None,
    api_tries: int = 0,
    waits_for: str | None = None,
    work: dict[str, Any] | None = None,
    **fields: Any,
) -> ProcessingJob:
    """End a step: store its result and the time of the next one, and release the lease.

    `waits_for`: the paused provider, `budget`, `transcript` or `stream_end`.
    """
    job = update(job, now, work=work, **fields)
    attempts = job.attempts if attempts is None else attempts
    sql = """UPDATE jobs SET attempts = ?, api_tries = ?, crashes = 0, next_attempt_at = ?, waits_for = ?,
                    lease_token = NULL, lease_until = NULL WHERE job_id = ? AND lease_token = ?"""
    due_at = now if next_at is None else next_at
    if changed(sql, attempts, api_tries, due_at, waits_for, job.id, job.token) != 1:
        raise LostLease(f"job {job.id} is held by another worker")
    _claimed.pop(job.id, None)
    return replace(job, attempts=attempts, api_tries=api_tries, token="")


def release_after_error(job_id: str, now: float, *, at: float, crashed: bool) -> None:
    """Release a job of this process after an error, due again at `at`. `crashed`: the next claim counts a crash."""
    token = _claimed.pop(job_id, None)
    # A token that stays set is what the next claim counts as a crash.
    lease = "lease_until = ?" if crashed else "lease_token = NULL, lease_until = NULL"
    sql = f"UPDATE jobs SET next_attempt_at = ?, {lease} WHERE job_id = ? AND lease_token = ?"
    changed(sql, at, *([now - 1] if crashed else []), job_id, token)


def reopen(job: ProcessingJob, now: float, *, was: Literal["failed", "completed"] = "failed") -> None:
    """Queue a failed or completed job again. Its paid calls and their answers stay stored."""
    fields = {"next_retry_at": None} if job.collection == TRANSCRIPTION else {}
    doc = job.doc.changed(status="queued", updated_at=clock.iso(now), **fields)
    work = job.work | ({"provider": 0} if job.work.get("phase", "") == "" else {})  # all providers are asked again
    sql = """UPDATE jobs SET status = 'queued', doc = ?, work = ?, attempts = 0, api_tries = 0, crashes = 0,
                    next_attempt_at = ?, waits_for = NULL, updated_at = ?, lease_token = NULL, lease_until = NULL
             WHERE job_id = ? AND status = ?"""
    if changed(sql, dump(doc.shape()), dump(work), now, now, job.id, was) != 1:
        raise CsiError(f"job {job.id} is {job.doc.status}: only a {was} job can be reopened here")


def set_work(job_id: str, work: dict[str, Any]) -> None:
    """Of a job that no worker holds; part of the transaction that reopened it."""
    changed("UPDATE jobs SET work = ? WHERE job_id = ? AND lease_token IS NULL", dump(work), job_id)


def due(now: float, limit: int = 200) -> list[str]:
    """Open jobs that are due and not claimed."""
    sql = f"""SELECT job_id FROM jobs WHERE status IN {OPEN} AND next_attempt_at <= ?
              AND (lease_until IS NULL OR lease_until < ?) ORDER BY next_attempt_at, job_id LIMIT ?"""
    return [row[0] for row in fetch(sql, now, now, limit)]


def open_count() -> int:
    return number(f"SELECT count(*) FROM jobs WHERE status IN {OPEN}")


def wake_provider_job(provider_job_id: str, now: float) -> bool:
    """Make the open job with this provider id due now. False when no job has this id; a finished one is not changed."""
    changed(f"UPDATE jobs SET next_attempt_at = ? WHERE provider_job_id = ? AND status IN {OPEN}", now, provider_job_id)
    return one("SELECT 1 FROM jobs WHERE provider_job_id = ?", provider_job_id) is not None


def renew_leases(now: float) -> int:
    tokens = list(_claimed.values())
    sql = f"UPDATE jobs SET lease_until = ? WHERE lease_token IN ({marks(tokens)})"
    return changed(sql, now + LEASE_SECONDS, *tokens) if tokens else 0


def release_leases() -> int:
    """At an orderly shutdown: unfinished jobs are due at once and count no crash."""
    sql = "UPDATE jobs SET lease_token = NULL, lease_until = NULL WHERE lease_token LIKE ?"
    return changed(sql, f"{OWNER}.%")


def expire_all_leases(now: float) -> int:
    """At the start of the only worker: expire the leases of dead processes. The tokens stay, so crashes are counted."""
    return changed("UPDATE jobs SET lease_until = ? WHERE lease_token IS NOT NULL", now - 1)


def waiting(what: str) -> int:
    """How many jobs wait for a paused provider, the budget, a transcript or the end of a stream."""
    return number("SELECT count(*) FROM jobs WHERE waits_for = ?", what)


def waiting_until(what: str) -> float | None:
    """When the first of them is due."""
    row = one("SELECT MIN(next_attempt_at) FROM jobs WHERE waits_for = ?", what)
    return float(row[0]) if row and row[0] is not None else None


def release_waiting(what: str, now: float) -> int:
    """Make the jobs due that wait for this provider, or for the budget."""
    sql = f"UPDATE jobs SET next_attempt_at = ?, waits_for = NULL WHERE waits_for = ? AND status IN {OPEN}"
    return changed(sql, now, what)


def make_due(job_id: str, now: float) -> bool:
    """End the wait of one open job. False: it is not open, or a worker holds it."""
    sql = f"""UPDATE jobs SET next_attempt_at = ?, waits_for = NULL
              WHERE job_id = ? AND status IN {OPEN} AND lease_token IS NULL"""
    return changed(sql, now, job_id) == 1


def waiting_by_reason() -> dict[str, int]:
    sql = f"SELECT waits_for, count(*) FROM jobs WHERE waits_for IS NOT NULL AND status IN {OPEN} GROUP BY 1"
    return {name: int(count) for name, count in fetch(f"{sql} ORDER BY 1")}


def wait_of(video_id: str) -> tuple[str, float] | None:
    """What an open job of the video waits for, and until when."""
    sql = f"""SELECT waits_for, next_attempt_at FROM jobs WHERE video_id = ? AND waits_for IS NOT NULL
              AND status IN {OPEN} LIMIT 1"""
    row = one(sql, video_id)
    return (str(row[0]), float(row[1])) if row else None


def waiting_for_money(what: str, limit: int = 200) -> list[tuple[str, Decimal]]:
    """The jobs that wait for the budget, the oldest first, with what their next call may cost."""
    sql = f"SELECT job_id, work FROM jobs WHERE waits_for = ? AND status IN {OPEN} ORDER BY created_at, job_id LIMIT ?"
    return [(name, Decimal(json.loads(work).get("needed_usd", "0"))) for name, work in fetch(sql, what, limit)]


def release_one(what: str, now: float) -> str | None:
    """Make the oldest of them due. None: no job waits."""
    row = one("SELECT job_id FROM jobs WHERE waits_for = ? ORDER BY created_at, job_id LIMIT 1", what)
    if row is None:
        return None
    changed("UPDATE jobs SET next_attempt_at = ?, waits_for = NULL WHERE job_id = ?", now, row[0])
    return str(row[0])


def counts() -> dict[str, int]:
    """Open jobs by status, those that wait for a provider or the budget under `waiting`."""
    sql = f"""SELECT CASE WHEN waits_for IS NULL THEN status ELSE 'waiting' END, count(*) FROM jobs
              WHERE status IN {OPEN} GROUP BY 1"""
    return {name: int(count) for name, count in fetch(sql)}


def completed_since(moment: float) -> int:
    return number("SELECT count(*) FROM jobs WHERE status = 'completed' AND updated_at >= ?", moment)


def _job(row: tuple[Any, ...]) -> ProcessingJob:
    collection, text, work, *rest = row
    doc = MODELS[collection].model_validate(json.loads(text))
    return ProcessingJob(collection, doc, json.loads(work), *rest)
