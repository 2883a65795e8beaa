"""`/admin/status`, `backlog`, `slo`, `queue`, `quota`, `audit`: the state of the installation."""

from pydantic import Field

from csi.api_models import AuditLog, Backlog, InstallationStatus, NoQuota, QueueJson, QuotaJson, SloReport, quota
from csi.runtime import Runtime
from csi.status import backlog, overview
from csi.status.facts import gather
from csi.status.slo import report
from csi.status.upcoming import upcoming
from csi.store import audit
from csi.web import health
from csi.web.operation_definition import Ago, BeforeId, Limit, OperationList, RequestModel, page_of
from csi.web.responses import HttpProblem

LONGEST_WINDOW = 30 * 86_400.0

OPERATIONS = OperationList()


class SloQuery(RequestModel):
    """The window."""

    window: Ago = Field(86_400.0, description="Length of time up to now: 1h, 24h, 7d; at most 30d")


class AuditQuery(RequestModel):
    """Which part of the audit log."""

    limit: Limit = 50
    before: BeforeId = None


@OPERATIONS.add("GET", "/status", "getStatus", "Health, throughput, backlog and destinations on one page")
def show_status(rt: Runtime) -> InstallationStatus:
    facts = gather(rt)
    ready, live = health.readiness(facts), health.liveness(facts)
    return InstallationStatus.of_overview(
        overview.overview(rt),
        ready=ready.is_good,
        live=live.is_good,
        reasons=list(dict.fromkeys([*ready.body["reasons"], *live.body["reasons"]])),
        readiness=ready.body,
    )


@OPERATIONS.add("GET", "/waiting", "listWaiting", "Deprecated: renamed to /admin/backlog", is_deprecated=True)
@OPERATIONS.add("GET", "/backlog", "getBacklog", "What is waiting, and the reason, in pipeline order")
def list_backlog(rt: Runtime) -> Backlog:
    return Backlog.of(backlog=backlog.backlog(rt))


@OPERATIONS.add(
    "GET", "/slo", "getSlo", "The figures of PRD §6 and latencies over a window, counted from all rows", is_slow=True
)
def show_slo(rt: Runtime, query: SloQuery) -> SloReport:
    if not 60 <= query.window <= LONGEST_WINDOW:
        raise HttpProblem(400, "window: must be from 1m to 30d")
    return SloReport.of(report(rt, query.window))


@OPERATIONS.add("GET", "/queue", "getQueue", "What happens next: polls, batches, inbox, queued tasks")
def show_queue(rt: Runtime) -> QueueJson:
    return QueueJson.of_upcoming(upcoming(rt))


@OPERATIONS.add("GET", "/quota", "getQuota", "API units of this Pacific day, and how long they last")
def show_quota(rt: Runtime) -> QuotaJson | NoQuota:
    return quota(rt)


@OPERATIONS.add("GET", "/audit", "listActions", "Changes through this API and the dashboard, newest first")
def list_audit(rt: Runtime, query: AuditQuery) -> AuditLog:
    shown, following = page_of(audit.page(query.limit + 1, query.before), query.limit)
    return AuditLog.of(actions=shown, next=following)
