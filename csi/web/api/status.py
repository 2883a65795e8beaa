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
from csi.web.operation_definition import Ago, ApiRequest, BeforeId, Limit, Operation, RequestModel, page_of
from csi.web.responses import HttpProblem

LONGEST_WINDOW = 30 * 86_400.0


class SloQuery(RequestModel):
    """The window."""

    window: Ago = Field(86_400.0, description="Length of time up to now: 1h, 24h, 7d; at most 30d")


class AuditQuery(RequestModel):
    """Which part of the audit log."""

    limit: Limit = 50
    before: BeforeId = None


def show_status(rt: Runtime, call: ApiRequest) -> InstallationStatus:
    facts = gather(rt)
    ready, live = health.readiness(facts), health.liveness(facts)
    return InstallationStatus.of_overview(
        overview.overview(rt),
        ready=ready.is_good,
        live=live.is_good,
        reasons=list(dict.fromkeys([*ready.body["reasons"], *live.body["reasons"]])),
        readiness=ready.body,
    )


def show_slo(rt: Runtime, call: ApiRequest) -> SloReport:
    seconds = call.query.window
    if not 60 <= seconds <= LONGEST_WINDOW:
        raise HttpProblem(400, "window: must be from 1m to 30d")
    return SloReport.of(report(rt, seconds))


def list_backlog(rt: Runtime, call: ApiRequest) -> Backlog:
    return Backlog.of(backlog=backlog.backlog(rt))


def show_queue(rt: Runtime, call: ApiRequest) -> QueueJson:
    return QueueJson.of_upcoming(upcoming(rt))


def show_quota(rt: Runtime, call: ApiRequest) -> QuotaJson | NoQuota:
    return quota(rt)


def list_audit(rt: Runtime, call: ApiRequest) -> AuditLog:
    shown, following = page_of(audit.page(call.query.limit + 1, call.query.before), call.query.limit)
    return AuditLog.of(actions=shown, next=following)


OPERATIONS = [
    Operation("GET", "/status", "getStatus", "Health, throughput, backlog and destinations on one page", show_status),
    Operation("GET", "/backlog", "getBacklog", "What is waiting, and the reason, in pipeline order", list_backlog),
    Operation(
        "GET", "/waiting", "listWaiting", "Deprecated: renamed to /admin/backlog", list_backlog, is_deprecated=True
    ),
    Operation(
        "GET", "/slo", "getSlo", "The figures of PRD §6 and latencies over a window, counted from all rows", show_slo,
        query=SloQuery, is_slow=True,
    ),
    Operation("GET", "/queue", "getQueue", "What happens next: polls, batches, inbox, queued tasks", show_queue),
    Operation("GET", "/quota", "getQuota", "API units of this Pacific day, and how long they last", show_quota),
    Operation(
        "GET", "/audit", "listActions", "Changes through this API and the dashboard, newest first", list_audit,
        query=AuditQuery,
    ),
]  # fmt: skip
