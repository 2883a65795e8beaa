"""`/admin/status`, `problems`, `backlog`, `slo`, `queue`, `quota`, `audit`, `doctor`, `notify`, `prune`."""

import os

from pydantic import Field

from csi import api_models
from csi.admin import incidents, mutes
from csi.admin.incidents import NoSuchIncident
from csi.doctor import run_checks
from csi.runtime import Runtime
from csi.status import audit_sentences, backlog, overview
from csi.status.alert_overview import alert_overview
from csi.status.facts import gather
from csi.status.slo import report
from csi.status.upcoming import upcoming
from csi.status.verdict import verdict
from csi.web import health
from csi.web.operation_definition import MAX_ID, Ago, BeforeId, Limit, OperationList, RequestModel, page_of
from csi.web.responses import HttpProblem
from csi.worker import alerting, retention

LONGEST_WINDOW = 30 * 86_400.0

OPERATIONS = OperationList()


class SloQuery(RequestModel):
    """The window."""

    window: Ago = Field(86_400.0, description="Length of time up to now: 1h, 24h, 7d; at most 30d")


class AuditQuery(RequestModel):
    """Which part of the audit log."""

    limit: Limit = 50
    before: BeforeId = None


class RetentionRequest(RequestModel):
    """Whether to remove rows."""

    dry_run: bool = Field(True, description="Count what would be removed, and change nothing; false removes it")


class MuteRequest(RequestModel):
    """How long, and what."""

    duration: Ago = Field(description="How long: 30m, 2h, 1d; at most 30d")
    problem: str | None = Field(None, max_length=64, description="Only the alerts of this name; default: all")
    reason: str = Field("", max_length=200, description="Shown where mutes are listed")


class UnmuteRequest(RequestModel):
    """Which mute to end."""

    id: int | None = Field(None, ge=1, le=MAX_ID, description="The mute; default: every one")


@OPERATIONS.add("GET", "/status", "getStatus", "Health, throughput, backlog and destinations on one page")
def show_status(rt: Runtime) -> api_models.InstallationStatus:
    facts = gather(rt)
    ready, live = health.readiness(facts), health.liveness(facts)
    return api_models.InstallationStatus.of_overview(
        overview.overview(rt),
        ready=ready.is_good,
        live=live.is_good,
        reasons=list(dict.fromkeys([*ready.body["reasons"], *live.body["reasons"]])),
        readiness=ready.body,
    )


@OPERATIONS.add("GET", "/problems", "listProblems", "What is wrong now, with cause, effect and remedy")
def list_problems(rt: Runtime) -> api_models.ProblemList:
    return api_models.ProblemList.of(verdict(rt))


@OPERATIONS.add(
    "POST", "/problems/{id}/ack", "acknowledgeProblem", "Acknowledge an incident, by its number: its problem ends",
    refusals={404: "No incident of this number that is not acknowledged"},
)  # fmt: skip
def acknowledge(rt: Runtime, number: int) -> api_models.AcknowledgeReport:
    try:
        return api_models.AcknowledgeReport.of(acknowledged=incidents.acknowledge(rt, number, "admin API"))
    except NoSuchIncident as error:
        raise HttpProblem(404, str(error)) from error


@OPERATIONS.add("POST", "/problems/ack", "acknowledgeProblems", "Acknowledge every incident")
def acknowledge_all(rt: Runtime) -> api_models.AcknowledgeReport:
    return api_models.AcknowledgeReport.of(acknowledged=incidents.acknowledge_all(rt, "admin API"))


@OPERATIONS.add("GET", "/waiting", "listWaiting", "Deprecated: renamed to /admin/backlog", is_deprecated=True)
@OPERATIONS.add("GET", "/backlog", "getBacklog", "What is waiting, and the reason, in pipeline order")
def list_backlog(rt: Runtime) -> api_models.Backlog:
    return api_models.Backlog.of(backlog=backlog.backlog(rt))


@OPERATIONS.add(
    "GET", "/slo", "getSlo", "The objectives and latencies over a window, counted from all rows", is_slow=True
)
def show_slo(rt: Runtime, query: SloQuery) -> api_models.SloReport:
    if not 60 <= query.window <= LONGEST_WINDOW:
        raise HttpProblem(400, "window: must be from 1m to 30d")
    return api_models.SloReport.of(report(rt, query.window))


@OPERATIONS.add("GET", "/queue", "getQueue", "What happens next: polls, batches, inbox, queued tasks")
def show_queue(rt: Runtime) -> api_models.QueueJson:
    return api_models.QueueJson.of_upcoming(upcoming(rt))


@OPERATIONS.add("GET", "/quota", "getQuota", "API units of this Pacific day, how long they last, and the pace of hosts")
def show_quota(rt: Runtime) -> api_models.QuotaJson | api_models.NoQuota:
    return api_models.quota(rt)


@OPERATIONS.add("GET", "/audit", "listActions", "What operators and agents changed, newest first")
def list_audit(rt: Runtime, query: AuditQuery) -> api_models.AuditLog:
    shown, following = page_of(audit_sentences.page(query.limit + 1, query.before), query.limit)
    return api_models.AuditLog.of_sentences(shown, following)


@OPERATIONS.add(
    "GET", "/doctor", "getExamination", "Check the installation without network access; each problem with a remedy"
)
def examine_offline(rt: Runtime) -> api_models.DoctorReport:
    return api_models.DoctorReport.of_findings(list(run_checks.examine_running(rt, os.environ, online=False)))


@OPERATIONS.add(
    "POST", "/doctor", "examine",
    "The same, and one request to each receiver and each source; a playlist costs one API unit",
)  # fmt: skip
def examine(rt: Runtime) -> api_models.DoctorReport:
    return api_models.DoctorReport.of_findings(list(run_checks.examine_running(rt, os.environ, online=True)))


@OPERATIONS.add(
    "GET", "/notify", "getTroubles", "Alerts that are firing, the last alerts and notifications, targets and mutes"
)
def alerts(rt: Runtime) -> api_models.AlertStatus:
    return api_models.AlertStatus.of_overview(alert_overview(rt))


@OPERATIONS.add(
    "POST", "/notify/test", "testNotifications", "Send one message to every notification target, now",
    refusals={409: "No target is set"},
)  # fmt: skip
def test_notifications(rt: Runtime) -> api_models.NotificationTest:
    found = alerting.send_test(rt)
    targets = [api_models.TargetTest(target=name, accepted=accepted) for name, accepted in found.items()]
    return api_models.NotificationTest(ok=all(found.values()), targets=targets)


@OPERATIONS.add(
    "POST", "/notify/mute", "muteNotifications", "Do not notify operators for a time; alerts are still recorded"
)
def mute(rt: Runtime, body: MuteRequest) -> api_models.MuteJson:
    try:
        made = mutes.mute(rt, body.duration, problem=body.problem, reason=body.reason, by="api")
    except mutes.CannotMute as error:
        raise HttpProblem(400, str(error)) from error
    return api_models.MuteJson.of(made)


@OPERATIONS.add("POST", "/notify/unmute", "unmuteNotifications", "End one mute, or every one, before its time")
def unmute(rt: Runtime, body: UnmuteRequest) -> api_models.Unmuted:
    return api_models.Unmuted(ended=mutes.unmute(rt, body.id, by="api"))


@OPERATIONS.add("POST", "/prune", "prune", "Remove rows older than `retention`; a dry run unless dry_run is false")
def prune(rt: Runtime, body: RetentionRequest) -> api_models.PruneReport:
    """One bounded run, like the worker's hourly one, so that a request does not last for hours."""
    found = retention.survey(rt) if body.dry_run else retention.prune(rt, max_chunks=retention.CHUNKS_PER_RUN)
    return api_models.PruneReport.of(found, dry_run=body.dry_run)
