"""The state of processing at this moment: facts read from rows, and the problems that follow from them. Reads only."""

from dataclasses import replace

from csi import clock
from csi.processing.pipeline.budget import BUDGET, MARK
from csi.processing.pipeline.provider_access import configured
from csi.processing.problems import DEAD_WINDOW, ProcessingFacts, ProcessingProblem, judge
from csi.processing.runtime import Processing
from csi.processing.store import dead_jobs, heartbeats, jobs, paid_calls, providers, runs
from csi.processing.store.db import is_postgres
from csi.worker_lock import lock_holder

PERSON = "person"
"""What a dead letter waits for that no automatic retry takes up."""
WORKER = "processing"
"""The name of the worker's heartbeat."""


def gather(rt: Processing) -> ProcessingFacts:
    now, today, settings, heartbeat = rt.now(), rt.today(), rt.settings, heartbeats.latest(WORKER)
    known = tuple(state for state in providers.all_states() if state.name in configured(rt))
    waiting = {name: jobs.waiting(name) for name in (BUDGET, *(state.name for state in known))}
    openai = settings.summarization.openai.api_key_env
    keys = {"assemblyai": settings.transcription.assemblyai.api_key_env} | ({"openai": openai} if openai else {})
    found = ProcessingFacts(
        now,
        heartbeat,
        providers=known,
        key_variables=keys,
        waiting=waiting,
        budget_limit=settings.budget.daily_usd,
        budget_used=paid_calls.used(today),
        budget_reserved=paid_calls.reserved(today),
        budget_spent_at=runs.marked_at(today, "quota", MARK),
        budget_resumes_at=jobs.waiting_until(BUDGET) if waiting[BUDGET] else None,
        jobs=jobs.counts(),
        dead=dead_jobs.open_by_cause(),
        recent_dead_letters=dead_jobs.open_since(now - DEAD_WINDOW),
        completed_lately=jobs.completed_since(now - DEAD_WINDOW),
        is_paused=settings.paused,
    )
    if found.is_alive or heartbeat is None or is_postgres():  # on PostgreSQL it may run on another machine
        return found
    return replace(found, process=lock_holder(settings.state_dir))


def waiting_jobs(rt: Processing) -> dict[str, int]:
    """Jobs by what they wait for: the budget, a transcript, the end of a stream, a paused provider by its name, or a
    person. What nothing waits for is left out."""
    dlq = rt.settings.dlq
    for_a_person = dead_jobs.for_a_person(rounds=dlq.max_rounds if dlq.auto_retry else 0)
    return jobs.waiting_by_reason() | ({PERSON: for_a_person} if for_a_person else {})


def problems(rt: Processing) -> list[ProcessingProblem]:
    return judge(gather(rt))


def describe_problem(problem: ProcessingProblem) -> dict[str, object]:
    """The problem as `csi processing status --json` and the health pages show it."""
    return {
        "id": problem.id,
        "subject": problem.subject,
        "severity": problem.severity,
        "what": problem.what,
        "cause": problem.cause,
        "since": None if problem.since is None else clock.iso(problem.since),
        "effect": problem.effect,
        "remedy": problem.remedy,
        "commands": problem.commands,
        "page": problem.kind.page,
        "runbook": problem.runbook,
    }
