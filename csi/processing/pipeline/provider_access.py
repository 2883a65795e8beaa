"""Pause a provider that refuses our account, let its jobs wait, and probe it until it accepts us again."""

from typing import Any

from csi.logs import log
from csi.processing.pipeline.budget import BUDGET
from csi.processing.providers.base import ProviderError
from csi.processing.runtime import Processing, StepWake, wake_job
from csi.processing.store import audit, jobs, providers
from csi.processing.store.audit import AuditScope
from csi.processing.store.db import writing
from csi.processing.store.jobs import ProcessingJob
from csi.processing.store.providers import PauseCause

PROBE_SECONDS = 300.0
WAIT_SECONDS = 86_400.0
"""A waiting job is due again after this time at the latest. The end of the pause makes it due at once."""


def configured(rt: Processing) -> set[str]:
    return {*rt.settings.transcription.providers, rt.settings.summarization.provider}


def provider_of(rt: Processing, job: ProcessingJob) -> str:
    """The provider that the job calls next."""
    if job.collection == jobs.SUMMARIZATION:
        return rt.settings.summarization.provider
    names = rt.settings.transcription.providers
    return names[min(int(job.work.get("provider", 0)), len(names) - 1)]


def may_call(rt: Processing, job: ProcessingJob) -> bool:
    """False: its provider is paused, and the job has been settled to wait for it. It uses no attempt."""
    state = providers.find(provider_of(rt, job))
    if state.paused_at is None or state.probe_job == job.id:
        return True
    with writing():
        wait(rt, job, state.name, error_message=f"{state.name} is paused: {state.last_error}")
    return False


def wait(rt: Processing, job: ProcessingJob, provider: str, **fields: Any) -> None:
    """Within a transaction."""
    now = rt.now()
    jobs.settle(job, now, next_at=now + WAIT_SECONDS, waits_for=provider, **fields)


def pause(rt: Processing, provider: str, error: ProviderError) -> None:
    """Within a transaction: no further job calls this provider."""
    cause: PauseCause = "no_credit" if error.code == "no_credit" else "authentication"
    if providers.pause(provider, cause, error.cause, rt.now(), probe_at=rt.now() + PROBE_SECONDS):
        log.error("provider is paused", provider=provider, cause=cause, status=error.status)
        failure = {"error_code": error.code, "error_message": error.cause}
        audit.write(_scope(rt, provider), "provider_pause", "failure", rt.now(), event_type="error", **failure)


def note_success(rt: Processing, provider: str, *, is_paid: bool) -> None:
    """Within a transaction. Any answer proves that the key is valid, only a paid call that there is credit."""
    providers.record_success(provider)
    if providers.resume(provider, ("authentication", "no_credit") if is_paid else ("authentication",)):
        _release(rt, provider, "the provider accepted a call")


def resume(rt: Processing, provider: str) -> int | None:
    """End the pause by command. Returns how many jobs are due again. None: the provider is not paused."""
    with writing():
        return _release(rt, provider, "by command", by=rt.operator) if providers.resume(provider) else None


def _release(rt: Processing, provider: str, reason: str, *, by: str | None = None) -> int:
    count = jobs.release_waiting(provider, rt.now())
    audit.write(_scope(rt, provider), "provider_resume", "success", rt.now(), data_summary=reason, user_id=by)
    log.info("provider is resumed", provider=provider, jobs=count)
    return count


def _scope(rt: Processing, provider: str) -> AuditScope:
    return rt.audit_scope("providers", "provider", provider)


def probe(rt: Processing, provider: str) -> list[StepWake]:
    """Ask a paused provider whether it accepts our key; where no free request tells, one waiting job calls it."""
    now = rt.now()
    with writing():
        if not providers.claim_probe(provider, now, next_at=now + PROBE_SECONDS):
            return []
    client = rt.chat if provider == "openai" else rt.paid.get(provider)
    if client is not None and providers.find(provider).pause_cause == "authentication":
        try:
            client.check_access()
        except ProviderError as error:
            if error.code == "authentication":
                return []
        else:
            with writing():
                note_success(rt, provider, is_paid=False)
            return []
    with writing():
        job_id = jobs.release_one(provider, now)
        if job_id is not None:
            providers.set_probe_job(provider, job_id)
    return [wake_job(job_id)] if job_id else []


def prepare(rt: Processing) -> None:
    """At the start of the worker: keys, providers and budget may have changed since it ended."""
    with writing():
        providers.make_probes_due(rt.now())
        for state in providers.all_states():
            if state.name not in configured(rt) and providers.resume(state.name):
                _release(rt, state.name, "no longer configured")
        jobs.release_waiting(BUDGET, rt.now())
