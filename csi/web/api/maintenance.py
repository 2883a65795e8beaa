"""`/admin/doctor`, `/admin/notify`, `/admin/prune`: as `csi doctor`, `csi notify status` and `csi prune`."""

import os

from pydantic import Field

from csi.api_models import AlertStatus, DoctorReport, PruneReport
from csi.doctor import run_checks
from csi.runtime import Runtime
from csi.web.operation_definition import ApiRequest, Operation, RequestModel
from csi.worker import alerting, retention


class RetentionRequest(RequestModel):
    """Whether to remove rows."""

    dry_run: bool = Field(True, description="Count what would be removed, and change nothing; false removes it")


def examine_offline(rt: Runtime, call: ApiRequest) -> DoctorReport:
    return DoctorReport.of_findings(list(run_checks.examine_running(rt, os.environ, online=False)))


def examine(rt: Runtime, call: ApiRequest) -> DoctorReport:
    return DoctorReport.of_findings(list(run_checks.examine_running(rt, os.environ, online=True)))


def alerts(rt: Runtime, call: ApiRequest) -> AlertStatus:
    return AlertStatus.of(alerting.standing(rt))


def prune(rt: Runtime, call: ApiRequest) -> PruneReport:
    """One bounded run, like the worker's hourly one, so that a request does not last for hours."""
    dry_run = call.body.dry_run
    found = retention.survey(rt) if dry_run else retention.prune(rt, max_chunks=retention.CHUNKS_PER_RUN)
    return PruneReport.of(found, dry_run=dry_run)


OPERATIONS = [
    Operation(
        "GET", "/doctor", "getExamination", "Check the installation without network access; each problem with a remedy",
        examine_offline,
    ),
    Operation(
        "POST", "/doctor", "examine",
        "The same, and one request to each receiver and each source; a playlist costs one API unit", examine,
    ),
    Operation("GET", "/notify", "getTroubles", "Alerts that are firing, and the last alerts", alerts),
    Operation(
        "POST", "/prune", "prune", "Remove rows older than `retention`; a dry run unless dry_run is false", prune,
        body=RetentionRequest,
    ),
]  # fmt: skip
