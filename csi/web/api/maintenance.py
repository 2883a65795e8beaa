"""`/admin/doctor`, `notify`, `prune`: what `csi doctor`, `csi notify status` and `csi prune` can do."""

import os
from typing import Any

from pydantic import Field

from csi.doctor import report
from csi.runtime import Runtime
from csi.web import json_views
from csi.web.api.operation import Call, Given, Operation
from csi.web.api.schema import STAMP, listed, maybe, shape, word
from csi.worker import alerting, retention


class Prune(Given):
    """Whether to do it."""

    dry_run: bool = Field(True, description="Say what would go, and change nothing; false removes it for ever")


def look(rt: Runtime, call: Call) -> dict[str, Any]:
    return json_views.examination(list(report.examine_running(rt, os.environ, online=False)))


def examine(rt: Runtime, call: Call) -> dict[str, Any]:
    return json_views.examination(list(report.examine_running(rt, os.environ, online=True)))


def notices(rt: Runtime, call: Call) -> dict[str, Any]:
    return json_views.lookout(alerting.standing(rt))


def prune(rt: Runtime, call: Call) -> dict[str, Any]:
    """One bounded run, as the worker's hourly one: a request must not last for hours."""
    if call.body.dry_run:
        return json_views.pruned(retention.survey(rt), dry_run=True)
    return json_views.pruned(retention.prune(rt, max_chunks=retention.CHUNKS_PER_RUN), dry_run=False)


_LEVELS = ("ok", "warn", "fail", "skip")
EXAMINATION = shape(
    ok=bool,
    counts=shape(**dict.fromkeys(_LEVELS, int)),
    checks=listed(shape(check=str, level=word(*_LEVELS), text=str, remedy=maybe(str))),
)
LOOKOUT = shape(
    services=int,
    heartbeat=bool,
    current=listed(shape(name=str, subject=str, text=str)),
    noted=listed(shape(trouble=str, subject=str, text=str, since=STAMP, told_at=maybe(STAMP), ended_at=maybe(STAMP))),
)
PRUNED = shape(dry_run=bool, tables=dict, total=int, complete=bool, open_letters_past_their_time=int)

OPERATIONS = [
    Operation(
        "GET",
        "/doctor",
        "getExamination",
        "Examine the installation without contacting anybody; every fault with its remedy",
        EXAMINATION,
        look,
    ),
    Operation(
        "POST",
        "/doctor",
        "examine",
        "The same, and ask each receiver and each source once; a playlist costs one API unit",
        EXAMINATION,
        examine,
    ),
    Operation(
        "GET", "/notify", "getTroubles", "What is wrong now, and which troubles were noted and told", LOOKOUT, notices
    ),
    Operation(
        "POST",
        "/prune",
        "prune",
        "Remove what is older than `retention` says; only looks unless dry_run is false",
        PRUNED,
        prune,
        body=Prune,
    ),
]
