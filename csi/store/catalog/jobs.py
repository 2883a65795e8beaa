"""The job ledger of the catalogue: jobs, their leases, and the history of their status.

Every change of a status goes through `_move`, is one of MOVES, and writes a row into `job_events`.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal

from peewee import IntegrityError

from csi.errors import StoreError
from csi.store import counters
from csi.store.catalog import channels, partitions
from csi.store.db import OWNER, changed, column, fetch, is_postgres, marks, new_token, run, writing
from csi.store.uuid7 import new_id

LEASE_SECONDS = 55.0
"""Longer than one request to the API; extended after each step."""

ERROR_TEXT = 500
CLAIM_TRIES = 5

# (from, to): the event type in the job's history. Any other change is refused.
MOVES: dict[tuple[str, str], str] = {
    ("pending", "running"): "started",
    ("running", "completed"): "completed",
    ("running", "failed"): "failed",
    ("running", "pending"): "retried",  # postponed (API budget, host), or its worker ended
    ("running", "dead"): "dead_lettered",
    ("failed", "pending"): "retried",
    ("failed", "dead"): "dead_lettered",
    ("pending", "dead"): "dead_lettered",
    ("dead", "pending"): "retried",  # by command, or redriven
    ("dead", "dead"): "dead_lettered",  # cancelled by command: it is not redriven and no longer reported
}
JobStatus = Literal["pending", "running", "failed", "completed", "dead"]
OPEN = ("pending", "running", "failed")
SETTLED = ("completed", "dead")


@dataclass(frozen=True)
class CatalogJob:
    """One job: the columns of the specification, and those of the ledger."""

    id: str
    type: str
    channel_id: str | None
    video_ids: tuple[str, ...]
    priority: int
    dedup_key: str
    status: JobStatus
    attempts: int
    """How often it was started; a postponed start does not count."""
    max_attempts: int
    """Attempts without progress before it is given up."""
    scheduled_at: float
    started_at: float | None
    completed_at: float | None
    error_message: str | None
    payload: dict[str, Any]
    progress: dict[str, Any]
    """Where the next attempt continues; saved in one transaction with the work done."""
    units: int
    """API units booked for it."""
    lease_token: str | None
    lease_until: float | None
    created_at: float
    changed_at: float
    """When its status last changed."""
    archived_at: float | None
    redrive_at: float | None
    """When a dead job is tried again without a command; None: only an operator can end its cause."""
    fruitless_attempts: int
    """Attempts since its last progress."""


COLUMNS = ", ".join(CatalogJob.__dataclass_fields__)
_WITH_ID = f"SELECT {COLUMNS} FROM jobs WHERE id = ?"
_OPEN_WITH_KEY = f"SELECT {COLUMNS} FROM jobs WHERE dedup_key = ? AND status IN ('pending', 'running', 'failed')"


@dataclass(frozen=True)
class JobEvent:
    """One change of a job's status."""

    id: str
    job_id: str
    event_type: str
    occurred_at: float
    details: dict[str, Any]
    duration_ms: int | None
    """Time spent in the previous status: how long it ran, or for `started` how long it waited."""


@dataclass(frozen=True)
class NewCatalogJob:
    """A job to enqueue. `scheduled_at` None: now."""

    type: str
    dedup_key: str
    priority: int = 5
    channel_id: str | None = None
    video_ids: tuple[str, ...] = ()
    payload: dict[str, Any] | None = None
    scheduled_at: float | None = None
    max_attempts: int = 5


@dataclass(frozen=True)
class EnqueueResult:
    """The job for the key, and whether it existed before."""

    job: CatalogJob
    is_duplicate: bool


# ── enqueue ─────────────────────────────────────────────────────────────────────────────────────────────


def enqueue(new: NewCatalogJob, now: float) -> EnqueueResult:
    """Insert a job, or return the open job of the same key; a unique index on open keys decides between two callers.
    An open job that is scheduled later is moved to the earlier time, one of lower priority gets the higher one."""
    for _ in range(CLAIM_TRIES):
        job_id = _insert(new, now)
        found = _read(_WITH_ID, job_id) if job_id else _read(_OPEN_WITH_KEY, new.dedup_key)
        if found:  # empty: the open job was settled between the two statements
            return EnqueueResult(_hasten(found[0], new, new.scheduled_at or now), job_id is None)
    raise StoreError(f"job {new.dedup_key} could not be stored; try again")


def _hasten(job: CatalogJob, new: NewCatalogJob, at: float) -> CatalogJob:
    """A job that was started and postponed keeps its time: it waits for the budget or for a host."""
    if job.scheduled_at > at:
        sql = "UPDATE jobs SET scheduled_at = ? WHERE id = ? AND status = 'pending' AND started_at IS NULL"
        with writing():
            job = replace(job, scheduled_at=at) if changed(sql, at, job.id) else job
    if job.priority < new.priority:
        with writing():
            run("UPDATE jobs SET priority = ? WHERE id = ? AND priority < ?", new.priority, job.id, new.priority)
        job = replace(job, priority=new.priority)
    return job


def _insert(new: NewCatalogJob, now: float) -> str | None:
    row = vars(new) | {
        "id": new_id(now),
        "video_ids": json.dumps(new.video_ids) if new.video_ids else None,
        "payload": json.dumps(new.payload or {}),
        "scheduled_at": now if new.scheduled_at is None else new.scheduled_at,
        "created_at": now,
        "changed_at": now,
    }
    sql = f"INSERT INTO jobs ({', '.join(row)}) VALUES ({marks([*row])}) ON CONFLICT DO NOTHING RETURNING id"
    try:
        found = fetch(sql, *row.values())
    except IntegrityError as error:
        raise StoreError(f"channel {new.channel_id} is not in the catalogue; add it first") from error
    return str(found[0][0]) if found else None


# ── claim, extend, settle ───────────────────────────────────────────────────────────────────────────────

# Both NOT IN lists are short, and each has a partial index of its own.
_NEXT = f"""
    SELECT {COLUMNS} FROM jobs j {{index}}
    WHERE j.status = 'pending' AND j.scheduled_at <= ? AND (j.channel_id IS NULL OR (
        j.channel_id NOT IN (SELECT r.channel_id FROM jobs r WHERE r.status = 'running' AND r.channel_id IS NOT NULL)
        AND j.channel_id NOT IN (SELECT c.id FROM channels c WHERE c.status = 'paused')))
    ORDER BY j.priority DESC, j.scheduled_at LIMIT {{limit}} {{lock}}
"""


def due_sql(limit: int, *, locking: bool = False) -> str:
    """The most frequent query. The index is named because SQLite keeps no current statistics of a table that changes
    this fast and would choose another."""
    lock = "FOR UPDATE OF j SKIP LOCKED" if is_postgres() and locking else ""
    return _NEXT.format(index="" if is_postgres() else "INDEXED BY idx_jobs_ready", limit=limit, lock=lock)


def due(now: float, limit: int = 10) -> list[CatalogJob]:
    """The jobs that could be claimed now, the most urgent first."""
    return _read(due_sql(limit), now)


def claim(now: float) -> CatalogJob | None:
    """Claim the most urgent due job under a lease. A channel has at most one running job: a unique index decides
    between two workers."""
    partitions.ensure_partition("job_events", now)
    for _ in range(CLAIM_TRIES):
        try:
            # Committed before the job runs: if the process dies, `requeue_stuck` finds the expired lease.
            with writing():
                found = _read(due_sql(1, locking=True), now)
                if not found:
                    return None
                job = found[0]
                values: dict[str, Any] = {
                    "attempts": job.attempts + 1,
                    "fruitless_attempts": job.fruitless_attempts + 1,
                    "started_at": now,
                    "error_message": None,
                }
                if _move(job, "running", now, lease_token=new_token(), lease_until=now + LEASE_SECONDS, **values):
                    return find(job.id)
        except IntegrityError:
            continue  # another worker claimed a job of the same channel first
    return None


def checkpoint(job: CatalogJob, progress: dict[str, Any], now: float) -> bool:
    """Save progress and extend the lease, in the transaction that stores the work of this step. False: the lease was
    lost, and the caller must roll back."""
    sql = """UPDATE jobs SET progress = ?, fruitless_attempts = 0, lease_until = ?
        WHERE id = ? AND status = 'running' AND lease_token = ?"""
    return bool(changed(sql, json.dumps(progress), now + LEASE_SECONDS, job.id, job.lease_token))


def heartbeat(job: CatalogJob, now: float) -> bool:
    """Extend the lease. False: the job was cancelled, or its lease expired and it was requeued."""
    sql = "UPDATE jobs SET lease_until = ? WHERE id = ? AND status = 'running' AND lease_token = ?"
    return bool(changed(sql, now + LEASE_SECONDS, job.id, job.lease_token))


def add_units(job_id: str, units: int) -> None:
    run("UPDATE jobs SET units = units + ? WHERE id = ?", units, job_id)


def complete(job: CatalogJob, details: dict[str, Any], now: float) -> bool:
    with writing():
        return _move(job, "completed", now, details, completed_at=now, progress=None)


def fail(job: CatalogJob, why: str, until: float, now: float) -> bool:
    """The attempt failed; the next one is at `until`."""
    with writing():
        return _move(job, "failed", now, {"error": why}, scheduled_at=until, error_message=why[:ERROR_TEXT])


def snooze(job: CatalogJob, why: str, until: float, now: float) -> bool:
    """Postpone a job that cannot run now, without counting an attempt."""
    with writing():
        values = {
            "scheduled_at": until,
            "error_message": why[:ERROR_TEXT],
            "attempts": max(job.attempts - 1, 0),
            "fruitless_attempts": max(job.fruitless_attempts - 1, 0),
        }
        return _move(job, "pending", now, {"reason": why, "until": until}, **values)


def mark_dead(job: CatalogJob, why: str, now: float, *, redrive_at: float | None = None) -> bool:
    """Give the job up, for good or until `redrive_at`; the status of its channel becomes `error`."""
    with writing():
        values = {"completed_at": now, "error_message": why[:ERROR_TEXT], "redrive_at": redrive_at}
        if not _move(job, "dead", now, {"error": why}, **values):
            return False
        counters.add("jobs", source=job.type, label="dead")
        channels.note_error(job.channel_id or "")
        return True


# ── by command ──────────────────────────────────────────────────────────────────────────────────────────


def cancel(job: CatalogJob, now: float) -> bool:
    """Cancel in any status; False when it was cancelled before. A worker that runs the job loses the lease: its next
    `checkpoint` fails and stores nothing."""
    if job.error_message == "cancelled" and job.status == "dead":
        return False
    partitions.ensure_partition("job_events", now)
    with writing():
        values = {"completed_at": now, "error_message": "cancelled", "redrive_at": None}
        return _move(job, "dead", now, {"reason": "cancelled"}, **values)


def make_due_now(job: CatalogJob, now: float) -> bool:
    """A pending job is due now. False: it is not pending any more."""
    with writing():
        return bool(changed("UPDATE jobs SET scheduled_at = ? WHERE id = ? AND status = 'pending'", now, job.id))


def retry_now(job: CatalogJob, now: float, reason: str = "by command") -> bool:
    """A dead or failed job is due now with all its attempts, and continues at its saved progress. False: it is neither,
    or another job of the same key is open."""
    partitions.ensure_partition("job_events", now)
    values = {
        "fruitless_attempts": 0,
        "scheduled_at": now,
        "completed_at": None,
        "error_message": None,
        "redrive_at": None,
    }
    try:
        with writing():
            return _move(job, "pending", now, {"reason": reason}, **values)
    except IntegrityError:
        return False


# ── rescue ──────────────────────────────────────────────────────────────────────────────────────────────


def release_failed(now: float, limit: int = 100) -> int:
    """Make failed jobs pending whose retry time has come."""
    found = _read(f"SELECT {COLUMNS} FROM jobs WHERE status = 'failed' AND scheduled_at <= ? LIMIT ?", now, limit)
    if not found:
        return 0
    partitions.ensure_partition("job_events", now)
    with writing():
        return sum(_move(job, "pending", now) for job in found)


def redrive_dead(now: float, limit: int = 20) -> int:
    """Make dead jobs due whose cause may have passed. A job whose work another open job does stays dead."""
    sql = f"""SELECT {COLUMNS} FROM jobs WHERE redrive_at <= ? AND status = 'dead' AND archived_at IS NULL
        AND dedup_key NOT IN (SELECT o.dedup_key FROM jobs o WHERE o.status IN ('pending', 'running', 'failed'))
        LIMIT ?"""
    return sum(retry_now(job, now, "redriven") for job in _read(sql, now, limit))


def requeue_stuck(now: float, limit: int = 100) -> int:
    """Requeue running jobs whose lease expired because their worker died. A job that ended the process in each of its
    attempts is given up. A lease that ends later than any could comes from a clock that was ahead."""
    sql = f"SELECT {COLUMNS} FROM jobs WHERE status = 'running' AND (lease_until < ? OR lease_until > ?) LIMIT ?"
    return sum(_requeue(job, now) for job in _read(sql, now, now + 2 * LEASE_SECONDS, limit))


def requeue_all(now: float) -> int:
    """At the start of the only worker: every running job belongs to a process that ended."""
    return sum(_requeue(job, now) for job in _read(f"SELECT {COLUMNS} FROM jobs WHERE status = 'running'"))


def release_own(now: float) -> int:
    """At an orderly shutdown: jobs of this process are due now, without counting an attempt."""
    sql = f"SELECT {COLUMNS} FROM jobs WHERE status = 'running' AND lease_token LIKE ?"
    return sum(snooze(job, "the worker ended", now, now) for job in _read(sql, f"{OWNER}.%"))


def _requeue(job: CatalogJob, now: float) -> bool:
    partitions.ensure_partition("job_events", now)
    if job.fruitless_attempts >= job.max_attempts and _ended_every_worker(job):
        return mark_dead(job, f"its worker ended {job.fruitless_attempts} times in the middle of it", now)
    with writing():
        return _move(job, "pending", now, {"reason": "stuck"}, scheduled_at=now, error_message="its worker ended")


def _ended_every_worker(job: CatalogJob) -> bool:
    """Whether none of its attempts without progress failed in an orderly way: an API that was down did not end them."""
    sql = """SELECT details FROM job_events WHERE job_id = ? AND (event_type = 'failed' OR details LIKE ?)
        ORDER BY occurred_at DESC, id DESC LIMIT ?"""
    details = column(sql, job.id, '%"reason": "stuck"%', job.fruitless_attempts - 1)
    return all(json.loads(text).get("reason") == "stuck" for text in details)


# ── the only place that changes a status ────────────────────────────────────────────────────────────────


def _move(job: CatalogJob, after: str, now: float, details: dict[str, Any] | None = None, **values: Any) -> bool:
    """Change the status if status and lease are still those of `job`, and write its history. Part of a transaction.
    False: another process changed the job since, or the change is not one of MOVES."""
    event_type = MOVES.get((job.status, after))
    if event_type is None:
        return False
    if after != "running":
        values |= {"lease_token": None, "lease_until": None}
    values |= {"status": after, "changed_at": now}
    names = ", ".join(f"{name} = ?" for name in values)
    same = "status = ? AND lease_token IS NULL" if job.lease_token is None else "status = ? AND lease_token = ?"
    known = [job.status, *([job.lease_token] if job.lease_token is not None else [])]
    if not changed(f"UPDATE jobs SET {names} WHERE id = ? AND {same}", *values.values(), job.id, *known):
        return False
    sql = "INSERT INTO job_events (id, job_id, event_type, occurred_at, details, duration_ms) VALUES (?, ?, ?, ?, ?, ?)"
    milliseconds = max(round((now - job.changed_at) * 1000), 0)
    partitions.ensure_partition("job_events", now)
    run(sql, new_id(now), job.id, event_type, now, json.dumps(details or {}), milliseconds)
    return True


# ── read ────────────────────────────────────────────────────────────────────────────────────────────────


def find(job_id: str) -> CatalogJob | None:
    return next(iter(_read(_WITH_ID, job_id)), None)


def matching_id(text: str, limit: int = 5) -> list[CatalogJob]:
    """Jobs whose id begins or ends with this text, as typed on the command line."""
    sql = f"SELECT {COLUMNS} FROM jobs WHERE id LIKE ? OR id LIKE ? ORDER BY id LIMIT ?"
    return _read(sql, f"{text}%", f"%{text}", limit)


def page(
    *, status: str | None = None, type: str | None = None, channel_id: str | None = None, limit: int = 50,
    before: str | None = None,
) -> list[CatalogJob]:  # fmt: skip
    """Newest first; `before` is the id of the last job of the previous page."""
    # Nearly all jobs are completed: with the status index SQLite would sort them all, by primary key it reads one page.
    by_status = "status || ''" if status == "completed" else "status"
    wanted = {by_status: status, "type": type, "channel_id": channel_id}
    terms = [(f"{name} = ?", value) for name, value in wanted.items() if value is not None]
    terms += [("id < ?", before)] if before is not None else []
    where = f"WHERE {' AND '.join(term for term, _ in terms)}" if terms else ""
    sql = f"SELECT {COLUMNS} FROM jobs {where} ORDER BY id DESC LIMIT ?"
    return _read(sql, *(value for _, value in terms), limit)


def history(job_id: str) -> list[JobEvent]:
    names = ", ".join(JobEvent.__dataclass_fields__)
    rows = fetch(f"SELECT {names} FROM job_events WHERE job_id = ? ORDER BY occurred_at, id", job_id)
    return [JobEvent(id, job, kind, at, json.loads(details), took) for id, job, kind, at, details, took in rows]


def running_count(now: float) -> int:
    """Jobs that run now, in all processes."""
    return int(fetch("SELECT COUNT(*) FROM jobs WHERE status = 'running' AND lease_until >= ?", now)[0][0])


def _read(sql: str, *values: Any) -> list[CatalogJob]:
    """The jobs that a query of COLUMNS finds."""
    found = [dict(zip(CatalogJob.__dataclass_fields__, row, strict=True)) for row in fetch(sql, *values)]
    for row in found:
        row |= {name: json.loads(row[name] or "{}") for name in ("payload", "progress")}
        row["video_ids"] = tuple(json.loads(row["video_ids"] or "[]"))
    return [CatalogJob(**row) for row in found]
