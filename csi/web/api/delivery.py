"""`/admin/delivery`: the receivers. What `csi delivery` can do."""

from typing import Any

from pydantic import Field

from csi.doctor import destination
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.status import destinations
from csi.status.destinations import UnknownDestination
from csi.web import json_views
from csi.web.api.operation import Call, Given, Operation, Refusal
from csi.web.api.schema import STAMP, listed, maybe, named, shape, word


class Pause(Given):
    """Why."""

    reason: str = Field("by the admin API", max_length=200, description="Shown wherever somebody asks why")


def status(rt: Runtime, call: Call) -> dict[str, Any]:
    found = [json_views.standing(one) for one in destinations.standings(rt)]
    return {"enabled": rt.settings.features.delivery, "destinations": found}


def pause(rt: Runtime, call: Call) -> dict[str, Any]:
    name = known(rt, call)
    reason = clean(call.body.reason, 200).strip() or "by the admin API"
    return {"destination": name, "changed": destinations.hold(rt, name, reason), "held": reason}


def resume(rt: Runtime, call: Call) -> dict[str, Any]:
    name = known(rt, call)
    return {"destination": name, "changed": destinations.resume(rt, name), "held": None}


def test(rt: Runtime, call: Call) -> dict[str, Any]:
    return json_views.checkup(destination.check(rt, known(rt, call)))


def known(rt: Runtime, call: Call) -> str:
    try:
        return destinations.configured_name(rt, call.path["destination"])
    except UnknownDestination as error:
        raise Refusal(404, str(error)) from error


STANDING = shape(
    destination=str,
    configured=bool,
    gate=word("open", "held", "paused", "away", "probe"),
    held=maybe(str),
    breaker=word("closed", "open"),
    breaker_reason=maybe(str),
    opened_at=maybe(STAMP),
    next_probe_at=maybe(STAMP),
    paused_until=maybe(STAMP),
    canonical_json=str,
    last_success_at=maybe(STAMP),
    last_failure_at=maybe(STAMP),
    last_error=maybe(str),
    pending=int,
    in_flight=int,
    dead_letters=int,
    lanes=listed(shape(lane=str, pending=int, in_flight=int, oldest_seen_at=maybe(STAMP), next_due_at=maybe(STAMP))),
)
SCHEMAS = {"Destination": STANDING}
_CHECKUP = shape(
    ok=bool,
    destination=str,
    url=str,
    status=maybe(int),
    seconds=float,
    text=str,
    forms=str,
    forms_text=str,
    clock_ahead=maybe(float),
    clock_text=str,
)
_HELD = shape(destination=str, changed=bool, held=maybe(str))
_ABSENT = {404: "No destination of that name"}

OPERATIONS = [
    Operation(
        "GET",
        "/delivery",
        "getDelivery",
        "For each destination: whether events go out, and what waits",
        shape(enabled=bool, destinations=listed(named("Destination"))),
        status,
    ),
    Operation(
        "POST",
        "/delivery/{destination}/pause",
        "pauseDelivery",
        "Hold delivery, over restarts, until it is resumed",
        _HELD,
        pause,
        body=Pause,
        refusals=_ABSENT,
    ),
    Operation(
        "POST",
        "/delivery/{destination}/resume",
        "resumeDelivery",
        "Send again after a pause by command",
        _HELD,
        resume,
        refusals=_ABSENT,
    ),
    Operation(
        "POST",
        "/delivery/{destination}/test",
        "testDelivery",
        "Send a signed empty batch, and explain the answer",
        _CHECKUP,
        test,
        refusals=_ABSENT | {409: "Its endpoint or its secret is not set"},
    ),
]
