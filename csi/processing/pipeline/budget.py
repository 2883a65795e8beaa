"""The day's money: reserved before a paid call, corrected after it, told at 80 %, refused at 100 %."""

from decimal import Decimal

from csi.errors import CsiError
from csi.logs import log
from csi.processing.providers.base import ProviderError
from csi.processing.runtime import Processing, day_span
from csi.processing.store import audit, notices, paid_calls, runs

SPENT = "daily_budget_usd"


class BudgetSpent(CsiError):
    """Today's money is gone: the work waits for tomorrow, and no attempt is used. `until` is when tomorrow begins."""

    def __init__(self, until: float) -> None:
        super().__init__("the day's budget is spent; paid work goes on after midnight UTC")
        self.until = until


def reserve(rt: Processing, call_key: str, job_id: str, provider: str, estimate: Decimal) -> None:
    """Within a transaction that commits before the call is made. What no day could pay for is not kept waiting."""
    now, today = rt.now(), rt.today()
    budget = rt.settings.budget.daily_usd
    if estimate > budget:
        words = f"its estimate of {estimate} USD is more than the whole day's budget of {budget} USD"
        raise ProviderError(words, fault="quota", code="over_budget", error_type="quota_exceeded")
    if not paid_calls.begin(call_key, job_id, provider, day=today, estimate=estimate, budget=budget, now=now):
        raise BudgetSpent(day_span(today)[1])
    watch(rt)


def note_spent(rt: Processing) -> None:
    """Said once a day, and kept in the run. In a transaction of its own: the reservation's was rolled back."""
    now, today = rt.now(), rt.today()
    if runs.mark(today, "quota", SPENT, now):
        log.warning(
            "the day's budget is spent", used=str(paid_calls.used(today)), budget=str(rt.settings.budget.daily_usd)
        )


def watch(rt: Processing) -> None:
    """Say once a day that the end of the money is near."""
    now, today, budget = rt.now(), rt.today(), rt.settings.budget
    used = paid_calls.used(today)
    if budget.daily_usd <= 0 or used < budget.daily_usd * Decimal(str(budget.alert_at)):
        return
    if runs.mark(today, "alert", "budget", now):
        share = f"{used} of {budget.daily_usd} USD"
        log.warning("the day's budget is nearly spent", used=str(used), budget=str(budget.daily_usd))
        notices.add(f"budget:{today}", "CSI: the day's budget is nearly spent", share, due_at=now, now=now)
        scope = audit.Scope("budget", None, "run", today, rt.settings.retention.audit_days)
        audit.write(scope, "budget_alert", "partial", now, event_type="policy_enforcement", data_summary=share)
