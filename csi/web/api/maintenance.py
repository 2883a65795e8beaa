"""`/admin/doctor`, `/admin/notify`, `/admin/prune`: as `csi doctor`, `csi notify status` and `csi prune`."""

import os

from pydantic import Field

from csi.api_models import AlertStatus, DoctorReport, PruneReport
from csi.doctor import run_checks
from csi.runtime import Runtime
from csi.web.operation_definition import OperationList, RequestModel
from csi.worker import alerting, retention

OPERATIONS = OperationList()


class RetentionRequest(RequestModel):
    """Whether to remove rows."""

    dry_run: bool = Field(True, description="Count what would be removed, and change nothing; false removes it")


@OPERATIONS.add(
    "GET", "/doctor", "getExamination", "Check the installation without network access; each problem with a remedy"
)
def examine_offline(rt: Runtime) -> DoctorReport:
    return DoctorReport.of_findings(list(run_checks.examine_running(rt, os.environ, online=False)))


@OPERATIONS.add(
    "POST", "/doctor", "examine",
    "The same, and one request to each receiver and each source; a playlist costs one API unit",
)  # fmt: skip
def examine(rt: Runtime) -> DoctorReport:
    return DoctorReport.of_findings(list(run_checks.examine_running(rt, os.environ, online=True)))


@OPERATIONS.add("GET", "/notify", "getTroubles", "Alerts that are firing, and the last alerts")
def alerts(rt: Runtime) -> AlertStatus:
    return AlertStatus.of(alerting.standing(rt))


@OPERATIONS.add("POST", "/prune", "prune", "Remove rows older than `retention`; a dry run unless dry_run is false")
def prune(rt: Runtime, body: RetentionRequest) -> PruneReport:
    """One bounded run, like the worker's hourly one, so that a request does not last for hours."""
    found = retention.survey(rt) if body.dry_run else retention.prune(rt, max_chunks=retention.CHUNKS_PER_RUN)
    return PruneReport.of(found, dry_run=body.dry_run)
