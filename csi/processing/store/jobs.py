"""Jobs: claimed by a conditional update, held under a lease, settled in one transaction with what follows from them."""

import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from csi import clock
from csi.errors import CsiError
from csi.processing.documents import SummarizationJobDocument, TranscriptionJobDocument
from csi.processing.store.db import OWNER, changed, dump, fetch, marks, new_token, one

Collection = Literal["jobs/transcription", "jobs/summarization"]
JobDocument = TranscriptionJobDocument | SummarizationJobDocument

TRANSCRIPTION: Collection = "jobs/transcription"
SUMMARIZATION: Collection = "jobs/summarization"
MODELS: dict[str, type[TranscriptionJobDocument] | type[SummarizationJobDocument]] = {
    TRANSCRIPTION: TranscriptionJobDocument,
    SUMMARIZATION: SummarizationJobDocument,
}

LEASE_SECONDS = 60.0
"""A living worker renews the leases of what it works on every few seconds; a dead one's run out."""

OPEN = "('queued', 'submitted', 'processing', 'retrying')"

_in_hand: dict[str, str] = {}
"""What this process works on now: job and token. A lease that is not in here is not renewed, whoever's it was."""


class LostLease(CsiError):
    """Somebody else holds this job now: whatever we found out about it is theirs to find out again."""


@dataclass(frozen=True)
class Job:
    """One job as it was claimed. `work` is the walk's own memory: provider, upload address, phase."""

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


def create(collection: Collection, doc: JobDocument, now: float, work: dict[str, Any] | None = None) -> bool:
    """False when the video has such a job already."""
    columns = "job_id, collection, video_id, status, doc, work, next_attempt_at, created_at, updated_at"
    sql = f"INSERT INTO jobs ({columns}) VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING"
    text = (dump(doc.shape()), dump(work or {}))
    return changed(sql, doc.job_id, collection, doc.video_id, doc.status, *text, now, now, now) == 1


def claim(job_id: str, now: float) -> Job | None:
    """The job, held by us; None when it is not due, not open, or held by somebody who lives."""
    token = new_token()
    sql = f"""UPDATE jobs SET lease_token = ?, lease_until = ?,
                     crashes = crashes + CASE WHEN lease_token IS NULL THEN 0 ELSE 1 END
              WHERE job_id = ? AND status IN {OPEN} AND next_attempt_at <= ?
                AND (lease_until IS NULL OR lease_until < ?)"""
    if changed(sql, token, now + LEASE_SECONDS, job_id, now, now) != 1:
        return None
    _in_hand[job_id] = token
    found = find(job_id)
    return replace(found, token=token) if found else None


def find(job_id: str) -> Job | None:
    row = one(f"SELECT {_COLUMNS} FROM jobs WHERE job_id = ?", job_id)
    return _job(row) if row else None


def reread(job: Job) -> Job:
    """The row as it is now, in the same hands: parts of the work were committed since the claim."""
    found = find(job.id)
    if found is None:
        raise LostLease(f"job {job.id} is gone")
    return replace(found, token=job.token)


def of_video(video_id: str) -> list[Job]:
    sql = f"SELECT {_COLUMNS} FROM jobs WHERE video_id = ? ORDER BY created_at, job_id"
    return [_job(row) for row in fetch(sql, video_id)]


def note(
    job: Job, now: float, *, work: dict[str, Any] | None = None, provider_job_id: str | None = None, **fields: Any
) -> Job:
    """Remember something in the middle of the work; the lease stays ours. LostLease when it is not."""
    doc = job.doc.changed(updated_at=clock.iso(now), **fields)
    job = replace(job, doc=doc, work={**job.work, **(work or {})})
    job = replace(job, provider_job_id=provider_job_id or job.provider_job_id)
    sql = """UPDATE jobs SET status = ?, doc = ?, work = ?, provider_job_id = ?, updated_at = ?
             WHERE job_id = ? AND lease_token = ?"""
    texts = (dump(doc.shape()), dump(job.work))
    if changed(sql, doc.status, *texts, job.provider_job_id, now, job.id, job.token) != 1:
        raise LostLease(f"job {job.id} is held by another worker")
    return job


def settle(
    job: Job,
    now: float,
    *,
    next_at: float | None = None,
    attempts: int | None = None,
    api_tries: int = 0,
    work: dict[str, Any] | None = None,
    **fields: Any,
) -> Job:
    """The end of one turn: what came of it, when it goes on, and the lease given back."""
    job = note(job, now, work=work, **fields)
    made = job.attempts if attempts is None else attempts
    sql = """UPDATE jobs SET attempts = ?, api_tries = ?, crashes = 0, next_attempt_at = ?, lease_token = NULL,
                    lease_until = NULL WHERE job_id = ? AND lease_token = ?"""
    if changed(sql, made, api_tries, now if next_at is None else next_at, job.id, job.token) != 1:
        raise LostLease(f"job {job.id} is held by another worker")
    _in_hand.pop(job.id, None)
    return replace(job, attempts=made, api_tries=api_tries, token="")


def let_go(job_id: str, now: float, *, at: float, crashed: bool) -> None:
    """After an error of ours, by whoever held it: due again at that time. `crashed`: the next claim counts it."""
    token = _in_hand.pop(job_id, None)
    lease = "lease_until = ?" if crashed else "lease_token = NULL, lease_until = NULL"
    sql = f"UPDATE jobs SET next_attempt_at = ?, {lease} WHERE job_id = ? AND lease_token = ?"
    changed(sql, at, *([now - 1] if crashed else []), job_id, token)


def reopen(job: Job, now: float, *, was: Literal["failed", "completed"] = "failed") -> None:
    """Back to the queue, from the dead letters or for more. What was paid and answered stays known."""
    fields = {"next_retry_at": None} if job.collection == TRANSCRIPTION else {}
    doc = job.doc.changed(status="queued", updated_at=clock.iso(now), **fields)
    sql = """UPDATE jobs SET status = 'queued', doc = ?, attempts = 0, api_tries = 0, crashes = 0,
                    next_attempt_at = ?, updated_at = ?, lease_token = NULL, lease_until = NULL
             WHERE job_id = ? AND status = ?"""
    if changed(sql, dump(doc.shape()), now, now, job.id, was) != 1:
        raise CsiError(f"job {job.id} is {job.doc.status}: only a {was} job can be opened again here")


def due(now: float, limit: int = 200) -> list[str]:
    """Open jobs whose time has come and whom nobody holds."""
    sql = f"""SELECT job_id FROM jobs WHERE status IN {OPEN} AND next_attempt_at <= ?
              AND (lease_until IS NULL OR lease_until < ?) ORDER BY next_attempt_at, job_id LIMIT ?"""
    return [row[0] for row in fetch(sql, now, now, limit)]


def open_count() -> int:
    return int(fetch(f"SELECT count(*) FROM jobs WHERE status IN {OPEN}")[0][0])


def wake_provider_job(provider_job_id: str, now: float) -> str | None:
    """The provider says that this one is ready: look at once. None when no open job of ours has this id."""
    sql = f"UPDATE jobs SET next_attempt_at = ? WHERE provider_job_id = ? AND status IN {OPEN}"
    if changed(sql, now, provider_job_id) != 1:
        return None
    found = one("SELECT job_id FROM jobs WHERE provider_job_id = ?", provider_job_id)
    return str(found[0]) if found else None


def is_known_provider_job(provider_job_id: str) -> bool:
    return one("SELECT 1 FROM jobs WHERE provider_job_id = ?", provider_job_id) is not None


def renew_own(now: float) -> int:
    tokens = list(_in_hand.values())
    sql = f"UPDATE jobs SET lease_until = ? WHERE lease_token IN ({marks(tokens)})"
    return changed(sql, now + LEASE_SECONDS, *tokens) if tokens else 0


def release_own() -> int:
    """At an orderly end: unfinished work is due at once, and nobody counts it as a crash."""
    sql = "UPDATE jobs SET lease_token = NULL, lease_until = NULL WHERE lease_token LIKE ?"
    return changed(sql, f"{OWNER}.%")


def release_all(now: float) -> int:
    """At the start of the only worker: every lease is a dead process's. Ended, not erased, so that it is counted."""
    return changed("UPDATE jobs SET lease_until = ? WHERE lease_token IS NOT NULL", now - 1)


def _job(row: tuple[Any, ...]) -> Job:
    collection, text, work, *rest = row
    doc = MODELS[collection].model_validate(json.loads(text))
    return Job(collection, doc, json.loads(work), *rest)
