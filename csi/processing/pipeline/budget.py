"""The daily budget: reserved before a paid call, corrected after it, alerted at 80 %, enforced at 100 %."""

from decimal import Decimal
from typing import Any

from csi.errors import CsiError
from csi.logs import log
from csi.processing.providers.base import ProviderError
from csi.processing.runtime import Processing, day_span
from csi.processing.store import audit, jobs, notices, paid_calls, runs
from csi.processing.store.db import writing
from csi.processing.store.jobs import ProcessingJob

MARK = "daily_budget_usd"
BUDGET = "budget"
"""What a job waits for that the budget of the day does not cover."""


class BudgetExhausted(CsiError):
    """What is left of the day's budget does not cover the call. The job waits, and uses no attempt."""

    def __init__(self, until: float, needed: Decimal) -> None:
        super().__init__(f"a call may cost {needed} USD, more than is left of the day's budget")
        self.until, self.needed = until, needed


def reserve(rt: Processing, call_key: str, job_id: str, provider: str, estimate: Decimal) -> None:
    """Reserve the estimate, in the transaction that the caller commits before it sends the request."""
    now, today = rt.now(), rt.today()
    budget = rt.settings.budget.daily_usd
    if estimate > budget:  # waiting would not help: no later day has a larger budget
        words = f"the estimate of {estimate} USD is more than the daily budget of {budget} USD"
        raise ProviderError(words, "quota", "over_budget", error_type="quota_exceeded")
    if not paid_calls.begin(call_key, job_id, provider, day=today, estimate=estimate, budget=budget, now=now):
        raise BudgetExhausted(day_span(today)[1], estimate)
    alert_near_limit(rt)


def book(rt: Processing, call_key: str, state: paid_calls.State, **outcome: Any) -> None:
    """Within a transaction: record the outcome of a call. What its reservation returns goes to the jobs that wait."""
    paid_calls.finish(call_key, state, rt.now(), **outcome)
    left = paid_calls.left(rt.today(), rt.settings.budget.daily_usd)
    for job_id, needed in jobs.waiting_for_money(BUDGET):
        if needed <= left and jobs.make_due(job_id, rt.now()):
            left -= needed
        elif needed > left:
            _mark_spent(rt, needed)


def wait_for_budget(rt: Processing, job: ProcessingJob, exhausted: BudgetExhausted) -> None:
    """Settle a job until money returns or the next day begins."""
    error: dict[str, Any] = {"error_type": "quota_exceeded"} if job.collection == jobs.TRANSCRIPTION else {}
    with writing():  # a transaction of its own: that of the reservation was rolled back
        _mark_spent(rt, exhausted.needed)
        needed = str(exhausted.needed)
        error["error_message"] = str(exhausted)
        job = jobs.reread(job)
        work: dict[str, Any] = {"needed_usd": needed}
        if job.collection == jobs.TRANSCRIPTION and not job.work.get("phase"):
            work["provider"] = 0  # when money returns, there may be captions, which cost nothing
        jobs.settle(job, rt.now(), next_at=exhausted.until, waits_for=BUDGET, work=work, **error)


def _mark_spent(rt: Processing, needed: Decimal) -> None:
    """The budget is spent when the call does not fit although every reservation were returned."""
    today, budget = rt.today(), rt.settings.budget.daily_usd
    spent = paid_calls.used(today) - paid_calls.returning(today)
    if needed + spent > budget and runs.mark(today, "quota", MARK, rt.now()):
        log.warning("daily budget used up", used=str(spent), budget=str(budget))


def alert_near_limit(rt: Processing) -> None:
    """Warn once a day when the share `alert_at` of the budget is used."""
    now, today, budget = rt.now(), rt.today(), rt.settings.budget
    used = paid_calls.used(today)
    if budget.daily_usd <= 0 or used < budget.daily_usd * Decimal(str(budget.alert_at)):
        return
    if runs.mark(today, "alert", "budget", now):
        share = f"{used} of {budget.daily_usd} USD"
        log.warning("daily budget nearly used up", used=str(used), budget=str(budget.daily_usd))
        notices.add(f"budget:{today}", "CSI: the daily budget is nearly used up", share, due_at=now, now=now)
        scope = rt.audit_scope("budget", "run", today)
        audit.write(scope, "budget_alert", "partial", now, event_type="policy_enforcement", data_summary=share)
