"""The job ledger: rows that say what must be done, who does it now, and everything that became of it.

Every change of a status goes through `_move`, is one of MOVES, and leaves a row in `job_events`.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from peewee import IntegrityError

from csi.errors import StoreError
from csi.store import counters
from csi.store.catalog import channels, partitions
from csi.store.db import OWNER, changed, fetch, is_postgres, new_token, run, writing
from csi.store.uuid7 import new_id

LEASE_SECONDS = 55.0
"""Outlasts one request to the API; lengthened after each step."""

ERROR_TEXT = 500
CLAIM_TRIES = 5

# (from, to): the word in the job's history. What is not here cannot happen.
MOVES: dict[tuple[str, str], str] = {
    ("pending", "running"): "started",
    ("running", "completed"): "completed",
    ("running", "failed"): "failed",
    ("running", "pending"): "retried",  # it waits (for the budget, for a host), or its worker ended
    ("running", "dead"): "dead_lettered",
    ("failed", "pending"): "retried",
    ("failed", "dead"): "dead_lettered",
    ("pending", "dead"): "dead_lettered",
    ("dead", "pending"): "retried",  # by command
}
OPEN = ("pending", "running", "failed")
SETTLED = ("completed", "dead")


@dataclass(frozen=True)
class CatalogJob:
    """One piece of work, under the names of the specification, and what the ledger needs beside them."""

    id: str
    type: str
    channel_id: str | None
    video_ids: tuple[str, ...]
    priority: int
    dedup_key: str
    status: str
    attempts: int
    """Begun since it last moved forward."""
    max_attempts: int
    scheduled_at: float
    started_at: float | None
    completed_at: float | None
    error_message: str | None
    payload: dict[str, Any]
    progress: dict[str, Any]
    """Where it goes on after an interruption; saved in one transaction with what was done."""
    units: int
    """API units booked for it."""
    lease_token: str | None
    lease_until: float | None
    created_at: float
    changed_at: float
    """When its status changed last."""
    archived_at: float | None


COLUMNS = ", ".join(CatalogJob.__dataclass_fields__)


@dataclass(frozen=True)
class JobEvent:
    """One change of a job's status."""

    id: str
    job_id: str
    event_type: str
    occurred_at: float
    details: dict[str, Any]
    duration_ms: int | None
    """How long it was in the status that it left: how long it ran, or, for `started`, how long it waited."""


@dataclass(frozen=True)
class NewCatalogJob:
    """Work to be done. `scheduled_at` None: now."""

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
    """The job that does it, and whether that one was there before."""

    job: CatalogJob
    is_duplicate: bool


# ── in ──────────────────────────────────────────────────────────────────────────────────────────────────


def enqueue(new: NewCatalogJob, now: float) -> EnqueueResult:
    """One open job for a key: whoever comes second gets the first one's job. Race-free by the index on open keys.
    A job that was put off and is wanted sooner by now comes sooner."""
    for _ in range(CLAIM_TRIES):
        job_id = _insert(new, now)
        found = find(job_id) if job_id else find_open(new.dedup_key)
        if found is not None:  # None: the open one was finished between our two looks
            return EnqueueResult(_hasten(found, new.scheduled_at or now), job_id is None)
    raise StoreError(f"job {new.dedup_key} could not be stored; try again")


def _hasten(job: CatalogJob, at: float) -> CatalogJob:
    """One that was begun and waits keeps its wait: there is a reason for it."""
    if job.scheduled_at <= at:
        return job
    sql = "UPDATE jobs SET scheduled_at = ? WHERE id = ? AND status = 'pending' AND started_at IS NULL"
    with writing():
        return replace(job, scheduled_at=at) if changed(sql, at, job.id) else job


_INSERT = """
    INSERT INTO jobs (id, type, channel_id, video_ids, priority, dedup_key, max_attempts, scheduled_at, payload,
        created_at, changed_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id
"""


def _insert(new: NewCatalogJob, now: float) -> str | None:
    at = now if new.scheduled_at is None else new.scheduled_at
    ids = json.dumps(new.video_ids) if new.video_ids else None
    payload = json.dumps(new.payload or {})
    try:
        found = fetch(
            _INSERT, new_id(now), new.type, new.channel_id, ids, new.priority, new.dedup_key, new.max_attempts, at,
            payload, now, now,
        )  # fmt: skip
    except IntegrityError as error:
        raise StoreError(f"channel {new.channel_id} is not in the catalogue; add it first") from error
    return str(found[0][0]) if found else None


# ── taken, kept, settled ────────────────────────────────────────────────────────────────────────────────

# The two lists are short, and each is read from an index that holds nothing else.
_NEXT = f"""
    SELECT {COLUMNS} FROM jobs j {{index}}
    WHERE j.status = 'pending' AND j.scheduled_at <= ? AND (j.channel_id IS NULL OR (
        j.channel_id NOT IN (SELECT r.channel_id FROM jobs r WHERE r.status = 'running' AND r.channel_id IS NOT NULL)
        AND j.channel_id NOT IN (SELECT c.id FROM channels c WHERE c.status = 'paused')))
    ORDER BY j.priority DESC, j.scheduled_at LIMIT {{limit}} {{lock}}
"""


def due_sql(limit: int, *, locking: bool = False) -> str:
    """The query that runs most often. SQLite has no statistics of a table that changes this fast: the index that
    holds the order is named."""
    lock = "FOR UPDATE OF j SKIP LOCKED" if is_postgres() and locking else ""
    return _NEXT.format(index="" if is_postgres() else "INDEXED BY idx_jobs_ready", limit=limit, lock=lock)


def due(now: float, limit: int = 10) -> list[CatalogJob]:
    """The jobs that could be taken now, the most urgent first."""
    return [_job(row) for row in fetch(due_sql(limit), now)]


def claim(now: float) -> CatalogJob | None:
    """The most urgent job that is due, in our hands under a lease. One channel has one running job at most."""
    partitions.ensure_partition("job_events", now)
    for _ in range(CLAIM_TRIES):
        try:
            with writing():
                rows = fetch(due_sql(1, locking=True), now)
                if not rows:
                    return None
                job, token = _job(rows[0]), new_token()
                values: dict[str, Any] = {
                    "attempts": job.attempts + 1,
                    "lease_token": token,
                    "lease_until": now + LEASE_SECONDS,
                }
                if _move(job, "running", now, started_at=now, error_message=None, **values):
                    return find(job.id)
        except IntegrityError:
            continue  # another worker took a job of this channel at this moment
    return None


def checkpoint(job: CatalogJob, progress: dict[str, Any], now: float) -> bool:
    """It moved forward, and keeps its lease. Part of the transaction that stores what was done. False: it is not ours
    any more, and nothing of it may be stored."""
    sql = """UPDATE jobs SET progress = ?, attempts = 0, lease_until = ?
        WHERE id = ? AND status = 'running' AND lease_token = ?"""
    return bool(changed(sql, json.dumps(progress), now + LEASE_SECONDS, job.id, job.lease_token))


def heartbeat(job: CatalogJob, now: float) -> bool:
    """Still at it. False: it was cancelled, or taken for stuck."""
    sql = "UPDATE jobs SET lease_until = ? WHERE id = ? AND status = 'running' AND lease_token = ?"
    return bool(changed(sql, now + LEASE_SECONDS, job.id, job.lease_token))


def add_units(job_id: str, units: int) -> None:
    run("UPDATE jobs SET units = units + ? WHERE id = ?", units, job_id)


def complete(job: CatalogJob, details: dict[str, Any], now: float) -> bool:
    with writing():
        return _move(job, "completed", now, details, completed_at=now, progress=None)


def fail(job: CatalogJob, why: str, until: float, now: float) -> bool:
    """It is tried again at `until`."""
    with writing():
        return _move(job, "failed", now, {"error": why}, scheduled_at=until, error_message=why[:ERROR_TEXT])


def snooze(job: CatalogJob, why: str, until: float, now: float) -> bool:
    """Not its fault: it waits, and this was no attempt."""
    with writing():
        values = {"scheduled_at": until, "error_message": why[:ERROR_TEXT], "attempts": max(job.attempts - 1, 0)}
        return _move(job, "pending", now, {"reason": why, "until": until}, **values)


def mark_dead(job: CatalogJob, why: str, now: float) -> bool:
    """Given up, and its channel is in trouble."""
    with writing():
        if not _move(job, "dead", now, {"error": why}, completed_at=now, error_message=why[:ERROR_TEXT]):
            return False
        counters.add("jobs", source=job.type, label="dead")
        channels.note_error(job.channel_id or "")
        return True


# ── by command ──────────────────────────────────────────────────────────────────────────────────────────


def cancel(job: CatalogJob, now: float) -> bool:
    """Whatever it is doing: a worker that holds it finds out at its next step, and stores nothing more."""
    partitions.ensure_partition("job_events", now)
    with writing():
        return _move(job, "dead", now, {"reason": "cancelled"}, completed_at=now, error_message="cancelled")


def make_due_now(job: CatalogJob, now: float) -> bool:
    """It waits (for the budget, for its time) and is due now instead. False: it does not wait any more."""
    with writing():
        return bool(changed("UPDATE jobs SET scheduled_at = ? WHERE id = ? AND status = 'pending'", now, job.id))


def retry_now(job: CatalogJob, now: float) -> bool:
    """A dead or failed job is due again, with all its attempts; it goes on where it was. False: it is neither, or
    another job does the same by now."""
    partitions.ensure_partition("job_events", now)
    try:
        with writing():
            values = {"attempts": 0, "scheduled_at": now, "completed_at": None, "error_message": None}
            return _move(job, "pending", now, {"reason": "by command"}, **values)
    except IntegrityError:
        return False


# ── rescue ──────────────────────────────────────────────────────────────────────────────────────────────


def release_failed(now: float, limit: int = 100) -> int:
    """Failed jobs whose wait is over are due."""
    rows = fetch(f"SELECT {COLUMNS} FROM jobs WHERE status = 'failed' AND scheduled_at <= ? LIMIT ?", now, limit)
    if not rows:
        return 0
    partitions.ensure_partition("job_events", now)
    with writing():
        return sum(_move(_job(row), "pending", now) for row in rows)


def requeue_stuck(now: float, limit: int = 100) -> int:
    """Jobs whose worker died. One that ended the process as often as it may be tried is dead (DESIGN §1)."""
    sql = f"SELECT {COLUMNS} FROM jobs WHERE status = 'running' AND (lease_until < ? OR lease_until > ?) LIMIT ?"
    rows = fetch(sql, now, now + 2 * LEASE_SECONDS, limit)
    return sum(_requeue(_job(row), now) for row in rows)


def requeue_all(now: float) -> int:
    """At the start of the only worker: whoever held a job is gone."""
    rows = fetch(f"SELECT {COLUMNS} FROM jobs WHERE status = 'running'")
    return sum(_requeue(_job(row), now) for row in rows)


def release_own(now: float) -> int:
    """At an orderly end: what did not finish is due at once, and this was no attempt."""
    sql = f"SELECT {COLUMNS} FROM jobs WHERE status = 'running' AND lease_token LIKE ?"
    rows = [_job(row) for row in fetch(sql, f"{OWNER}.%")]
    return sum(snooze(job, "the worker ended", now, now) for job in rows)


def _requeue(job: CatalogJob, now: float) -> bool:
    partitions.ensure_partition("job_events", now)
    if job.attempts >= job.max_attempts:
        return mark_dead(job, f"its worker ended {job.attempts} times in the middle of it", now)
    with writing():
        return _move(job, "pending", now, {"reason": "stuck"}, scheduled_at=now, error_message="its worker ended")


# ── the one place ───────────────────────────────────────────────────────────────────────────────────────


def _move(job: CatalogJob, after: str, now: float, details: dict[str, Any] | None = None, **values: Any) -> bool:
    """Change the status of a job that is still as we know it, and write its history. Part of a transaction."""
    word = MOVES.get((job.status, after))
    if word is None:
        return False
    if after != "running":
        values |= {"lease_token": None, "lease_until": None}
    values |= {"status": after, "changed_at": now}
    names = ", ".join(f"{name} = ?" for name in values)
    same = "status = ? AND lease_token IS NULL" if job.lease_token is None else "status = ? AND lease_token = ?"
    known = [job.status, *([job.lease_token] if job.lease_token is not None else [])]
    if not changed(f"UPDATE jobs SET {names} WHERE id = ? AND {same}", *values.values(), job.id, *known):
        return False
    _write_event(job.id, word, now, details or {}, now - job.changed_at)
    return True


def _write_event(job_id: str, word: str, now: float, details: dict[str, Any], seconds: float) -> None:
    sql = "INSERT INTO job_events (id, job_id, event_type, occurred_at, details, duration_ms) VALUES (?, ?, ?, ?, ?, ?)"
    partitions.ensure_partition("job_events", now)
    run(sql, new_id(now), job_id, word, now, json.dumps(details), max(round(seconds * 1000), 0))


# ── looks ───────────────────────────────────────────────────────────────────────────────────────────────


def find(job_id: str) -> CatalogJob | None:
    rows = fetch(f"SELECT {COLUMNS} FROM jobs WHERE id = ?", job_id)
    return _job(rows[0]) if rows else None


def find_open(dedup_key: str) -> CatalogJob | None:
    sql = f"SELECT {COLUMNS} FROM jobs WHERE dedup_key = ? AND status IN ('pending', 'running', 'failed')"
    rows = fetch(sql, dedup_key)
    return _job(rows[0]) if rows else None


def matching_id(text: str, limit: int = 5) -> list[CatalogJob]:
    """Jobs whose id begins so: people type the first characters, or the last."""
    sql = f"SELECT {COLUMNS} FROM jobs WHERE id LIKE ? OR id LIKE ? ORDER BY id LIMIT ?"
    return [_job(row) for row in fetch(sql, f"{text}%", f"%{text}", limit)]


def page(
    *, status: str | None = None, type: str | None = None, channel_id: str | None = None, limit: int = 50,
    before: str | None = None,
) -> list[CatalogJob]:  # fmt: skip
    """The newest first; `before` is the id of the last one that was shown."""
    # Nearly all are completed: an index would find them all and sort them, where a look from the end finds a page.
    by_status = "status || ''" if status == "completed" else "status"
    wanted = {by_status: status, "type": type, "channel_id": channel_id}
    terms = [(f"{name} = ?", value) for name, value in wanted.items() if value is not None]
    terms += [("id < ?", before)] if before is not None else []
    where = f"WHERE {' AND '.join(term for term, _ in terms)}" if terms else ""
    sql = f"SELECT {COLUMNS} FROM jobs {where} ORDER BY id DESC LIMIT ?"
    return [_job(row) for row in fetch(sql, *(value for _, value in terms), limit)]


def history(job_id: str) -> list[JobEvent]:
    names = ", ".join(JobEvent.__dataclass_fields__)
    rows = fetch(f"SELECT {names} FROM job_events WHERE job_id = ? ORDER BY occurred_at, id", job_id)
    return [JobEvent(one, job, word, at, json.loads(told), took) for one, job, word, at, told, took in rows]


def counts() -> dict[str, int]:
    """How many jobs are in each status."""
    found = dict(fetch("SELECT status, COUNT(*) FROM jobs GROUP BY status"))
    return {status: int(found.get(status, 0)) for status in (*OPEN, *SETTLED)}


# Dead jobs that may need somebody: not those that somebody cancelled, nor those put away after a month.
_TROUBLED = "status = 'dead' AND archived_at IS NULL AND error_message <> 'cancelled'"


def unfinished() -> dict[tuple[str, str], int]:
    """How many jobs of each type are in each status that may need somebody, by (type, status)."""
    sql = f"""SELECT type, status, COUNT(*) FROM jobs WHERE status IN ('pending', 'running', 'failed', 'dead')
        AND (status <> 'dead' OR ({_TROUBLED})) GROUP BY type, status"""
    return {(type, status): int(count) for type, status, count in fetch(sql)}


def dead_count() -> int:
    return int(fetch(f"SELECT COUNT(*) FROM jobs WHERE {_TROUBLED}")[0][0])


def waiting_since(now: float) -> float | None:
    """When the longest waiting job that could be taken was due. Jobs of paused channels wait rightly."""
    sql = """SELECT MIN(j.scheduled_at) FROM jobs j WHERE j.status = 'pending' AND j.scheduled_at <= ? AND (
        j.channel_id IS NULL OR j.channel_id NOT IN (SELECT c.id FROM channels c WHERE c.status = 'paused'))"""
    found = fetch(sql, now)[0][0]
    return None if found is None else float(found)


def pending_count() -> int:
    return int(fetch("SELECT COUNT(*) FROM jobs WHERE status = 'pending'")[0][0])


def running_count(now: float) -> int:
    """Jobs that somebody works on, in all processes."""
    return int(fetch("SELECT COUNT(*) FROM jobs WHERE status = 'running' AND lease_until >= ?", now)[0][0])


def _job(row: tuple[Any, ...]) -> CatalogJob:
    values = dict(zip(CatalogJob.__dataclass_fields__, row, strict=True))
    values |= {name: json.loads(values[name] or "{}") for name in ("payload", "progress")}
    return CatalogJob(**values | {"video_ids": tuple(json.loads(values["video_ids"] or "[]"))})
