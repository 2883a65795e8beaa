"""Wake due jobs, claim one, run it step by step, settle it. A step's data and the job's progress commit together."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from csi.errors import CsiError, SourceError
from csi.logs import log
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import api_units, counters, db
from csi.store.catalog import jobs
from csi.store.catalog.jobs import CatalogJob
from csi.store.db import writing

WAKE_SECONDS = 2.0
"""Between two wake-ups by the maintenance loop; a finished job wakes the next one directly."""

FIRST_WAIT, LONGEST_WAIT, KEY_WAIT = 60.0, 3600.0, 900.0
FIRST_REDRIVE, LONGEST_REDRIVE = 3600.0, 86_400.0
"""A job that was given up for a cause that may pass is tried again after the time it has existed, within these."""
SPREAD = 600.0
"""Jobs that wait for midnight are spread over this time, so that they do not all start at once."""


LASTING = frozenset({"denied", "bug", "missing"})
"""Kinds of errors that do not pass by themselves."""


class JobLeaseLost(CsiError):
    """The job was cancelled, or its lease expired and it was requeued. Nothing of the current step was stored."""


def _nothing() -> None:
    """A step without data to store."""


@dataclass(frozen=True)
class StepDone:
    """A step is done, and another follows. `save` is called in the transaction that stores `progress`."""

    progress: dict[str, Any]
    save: Callable[[], None] = _nothing


@dataclass(frozen=True)
class JobDone:
    """The last step is done. `details` go into the job's history."""

    details: dict[str, Any] = field(default_factory=dict)
    save: Callable[[], None] = _nothing
    wakes: tuple[Wake, ...] = ()


Handler = Callable[[Runtime, CatalogJob], StepDone | JobDone]
"""Does the next step of a job, given its `progress`. After a SourceError the step is repeated later."""


def wake_due(rt: Runtime) -> list[Wake]:
    """One wake-up for each due job, up to the number of free job slots. A wake-up takes the most urgent job."""
    now = rt.now()
    if not rt.settings.catalog.enabled or 0 <= now - rt.process.jobs_woken_at < WAKE_SECONDS:
        return []
    # A wake-up beyond the free slots would hold a worker thread that polling and delivery need.
    free = rt.share.jobs - jobs.running_count(now)
    found = jobs.due(now, free) if free > 0 else []
    if found:
        rt.process.jobs_woken_at = now
    return [Wake("job", slot) for slot in range(len(found))]


def requeue_failed_and_stuck(rt: Runtime) -> int:
    """Make due: failed and dead jobs whose wait has ended, running jobs whose lease has expired. Returns how many."""
    now = rt.now()
    stuck = jobs.requeue_stuck(now)
    if stuck:
        log.warning("jobs with an expired lease requeued", jobs=stuck)
    redriven = jobs.redrive_dead(now)
    if redriven:
        log.info("jobs that were given up are tried again", jobs=redriven)
    return stuck + redriven + jobs.release_failed(now)


def run_next_job(rt: Runtime, handlers: Mapping[str, Handler]) -> list[Wake]:
    """Claim the most urgent due job and run it. Returns a wake-up for the next due job."""
    job = jobs.claim(rt.now())
    if job is None:
        return []
    wakes = _run(rt, job, handlers)
    return [*wakes, *([Wake("job", 0)] if not rt.stopping() and jobs.due(rt.now(), 1) else [])]


def _run(rt: Runtime, job: CatalogJob, handlers: Mapping[str, Handler]) -> tuple[Wake, ...]:
    try:
        if job.type not in handlers:
            raise SourceError(f"this version has no job type {job.type}", kind="denied")
        while isinstance(outcome := handlers[job.type](rt, job), StepDone):
            job = _save(rt, job, outcome)
            if rt.stopping():
                jobs.snooze(job, "the worker stopped", rt.now(), rt.now())
                return ()
        return _finish(rt, job, outcome)
    except JobLeaseLost:
        log.info("job lease lost", job=job.id, type=job.type)
    except SourceError as error:
        _settle_failure(rt, job, error)
    except db.DatabaseError:
        raise  # the job did not fail: its lease expires, and the maintenance loop requeues it
    except Exception as error:  # noqa: BLE001 a bug in one kind of job must not stop the others
        log.exception("job handler raised an unexpected error", job=job.id, type=job.type)
        _settle_failure(rt, job, SourceError(f"{type(error).__name__} in {job.type}", kind="bug"))
    return ()


def _save(rt: Runtime, job: CatalogJob, outcome: StepDone) -> CatalogJob:
    """Commit a step. A crash before the commit repeats the step, a crash after it resumes with the next one."""
    with writing():
        # The checkpoint is conditional on the lease: raising here rolls back, so that two workers cannot both store.
        if not jobs.checkpoint(job, outcome.progress, rt.now()):
            raise JobLeaseLost("lost before its step was stored")
        outcome.save()
    found = jobs.find(job.id)
    if found is None or found.lease_token != job.lease_token:
        raise JobLeaseLost("lost after its step was stored")
    return found


def _finish(rt: Runtime, job: CatalogJob, outcome: JobDone) -> tuple[Wake, ...]:
    now = rt.now()
    with writing():
        found = jobs.find(job.id)  # units were booked on the row while the step ran
        units = found.units if found is not None else job.units
        if not jobs.complete(job, outcome.details | {"units": units}, now):
            raise JobLeaseLost("lost before it was finished")
        outcome.save()
        counters.add("jobs", source=job.type, label="completed")
    log.info("job completed", job=job.id, type=job.type, channel=job.channel_id, units=units, **outcome.details)
    return outcome.wakes


def _settle_failure(rt: Runtime, job: CatalogJob, error: SourceError) -> None:
    now, found = rt.now(), jobs.find(job.id)
    if found is None or found.lease_token != job.lease_token:
        return
    why, midnight = str(error), api_units.day_ends(now)
    facts = {"job": job.id, "type": job.type, "channel": job.channel_id, "error": why, "kind": error.kind}
    # Each change is conditional on the lease: False means that the job was requeued meanwhile, and nothing is logged.
    match judge(error, found.fruitless_attempts, found.max_attempts, now=now, midnight=midnight, rng=rt.rng):
        case PostponeJob(until):
            with writing():
                counters.add("jobs", source=job.type, label="waits")
                changed = jobs.snooze(found, why, until, now)
            if changed:
                log.info("job postponed", until=until, **facts)
        case RetryWithBackoff(until):
            with writing():
                counters.add("jobs", source=job.type, label="failed")
                changed = jobs.fail(found, why, until, now)
            if changed:
                log.warning("job failed; it will be retried", attempts=found.fruitless_attempts, **facts)
        case GiveUpJob(may_pass):
            wait = min(max(now - found.created_at, FIRST_REDRIVE), LONGEST_REDRIVE)
            redrive_at = now + wait if may_pass else None
            with writing():
                changed = jobs.mark_dead(found, why, now, redrive_at=redrive_at)
            if changed:
                log.error("job given up", redrive_at=redrive_at, **facts)


@dataclass(frozen=True)
class PostponeJob:
    """Run again at `until`; no attempt is counted, because the job itself did not fail."""

    until: float


@dataclass(frozen=True)
class RetryWithBackoff:
    """Run again at `until`; an attempt is counted."""

    until: float


@dataclass(frozen=True)
class GiveUpJob:
    """The job is dead. `may_pass`: its cause may end without an operator, so that it is tried again much later."""

    may_pass: bool


def judge(
    error: SourceError, attempts: int, max_attempts: int, *, now: float, midnight: float, rng: random.Random
) -> PostponeJob | RetryWithBackoff | GiveUpJob:
    """`midnight` is the end of the API's day. Pure."""
    if error.kind in ("budget", "quota"):
        return PostponeJob(midnight + 1.0 + rng.uniform(0.0, SPREAD))
    if error.kind in ("throttled", "paused"):
        return PostponeJob(now + (error.retry_after or FIRST_WAIT * rng.uniform(0.8, 1.2)))
    if error.kind == "auth":
        return PostponeJob(now + KEY_WAIT)
    if attempts >= max_attempts or error.kind == "denied":
        return GiveUpJob(may_pass=error.kind not in LASTING)
    wait = min(FIRST_WAIT * 2 ** (max(attempts, 1) - 1), LONGEST_WAIT)
    return RetryWithBackoff(now + max(wait * rng.uniform(0.8, 1.2), error.retry_after or 0.0))
