"""One job, taken, carried out step by step, and settled. What a step did commits with where the next one begins."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from csi.errors import CsiError, SourceError
from csi.jobs.failure_verdict import GiveUpJob, PostponeJob, RetryJob, Verdict, judge
from csi.logs import log
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import api_units, counters, db
from csi.store.catalog import jobs
from csi.store.catalog.jobs import CatalogJob
from csi.store.db import writing


class JobLeaseLost(CsiError):
    """The job is not ours any more: cancelled, or taken for stuck. Nothing of the step was stored."""


def _nothing() -> None:
    """A step without anything to store."""


@dataclass(frozen=True)
class StepDone:
    """A step is done. `save` is called in the transaction that stores `progress`."""

    progress: dict[str, Any]
    save: Callable[[], None] = _nothing


@dataclass(frozen=True)
class JobDone:
    """The last step is done. `details` are for the job's history."""

    details: dict[str, Any] = field(default_factory=dict)
    save: Callable[[], None] = _nothing
    wakes: tuple[Wake, ...] = ()


Handler = Callable[[Runtime, CatalogJob], StepDone | JobDone]
"""Does the next step of a job by its `progress`. May raise SourceError: then the step is tried again later."""


def run_next_job(rt: Runtime, handlers: Mapping[str, Handler]) -> list[Wake]:
    """Take the most urgent job that is due, and do it. What is returned wakes the next."""
    job = jobs.claim(rt.now())
    if job is None:
        return []
    wakes = _carry_out(rt, job, handlers.get(job.type))
    return [*wakes, *([Wake("job", 0)] if not rt.stopping() and jobs.due(rt.now(), 1) else [])]


def _carry_out(rt: Runtime, job: CatalogJob, handler: Handler | None) -> tuple[Wake, ...]:
    try:
        if handler is None:
            raise SourceError(f"this version knows no job type {job.type}", kind="denied")
        return _steps(rt, job, handler)
    except JobLeaseLost:
        log.info("job is not ours any more", job=job.id, type=job.type)
    except SourceError as error:
        _settle_failure(rt, job, error)
    except db.DatabaseError:
        raise  # not the job's fault; its lease brings it back
    except Exception as error:  # noqa: BLE001 a bug in one kind of job must not stop the others
        log.exception("job failed by a fault of ours", job=job.id, type=job.type)
        _settle_failure(rt, job, SourceError(f"{type(error).__name__} in {job.type}", kind="bug"))
    return ()


def _steps(rt: Runtime, job: CatalogJob, handler: Handler) -> tuple[Wake, ...]:
    current = job
    while True:
        outcome = handler(rt, current)
        if isinstance(outcome, JobDone):
            return _finish(rt, current, outcome)
        current = _save(rt, current, outcome)
        if rt.stopping():
            jobs.snooze(current, "the worker ended", rt.now(), rt.now())
            return ()


def _save(rt: Runtime, job: CatalogJob, outcome: StepDone) -> CatalogJob:
    with writing():
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
        found = jobs.find(job.id)
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
    verdict = judge(
        error,
        attempts=found.attempts,
        max_attempts=found.max_attempts,
        now=now,
        midnight=api_units.day_ends(now),
        rng=rt.rng,
    )
    if _record(found, verdict, now):
        _say(found, error, verdict)


def _record(job: CatalogJob, verdict: Verdict, now: float) -> bool:
    with writing():
        match verdict:
            case PostponeJob(until, why):
                counters.add("jobs", source=job.type, label="waits")
                return jobs.snooze(job, why, until, now)
            case RetryJob(until, why):
                counters.add("jobs", source=job.type, label="failed")
                return jobs.fail(job, why, until, now)
            case GiveUpJob(why):
                return jobs.mark_dead(job, why, now)


def _say(job: CatalogJob, error: SourceError, verdict: Verdict) -> None:
    facts = {"job": job.id, "type": job.type, "channel": job.channel_id, "error": str(error), "kind": error.kind}
    if isinstance(verdict, GiveUpJob):
        log.error("job is dead", **facts)
    elif isinstance(verdict, RetryJob):
        log.warning("job failed; it is tried again", attempts=job.attempts, **facts)
    else:
        log.info("job waits", until=verdict.until, **facts)
