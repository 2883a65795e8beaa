"""`/admin/delivery`: destinations, as `csi delivery` shows and changes them."""

from pydantic import Field

from csi.admin import destinations
from csi.api_models import DeliveryStatus, DestinationJson, DestinationTest, PauseResult
from csi.doctor import destination_check
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.status.destinations import UnknownDestination, all_destinations, configured_name
from csi.web.operation_definition import ApiRequest, Operation, RequestModel
from csi.web.responses import HttpProblem

BY_API = "by the admin API"


class PauseRequest(RequestModel):
    """Why delivery is paused."""

    reason: str = Field(BY_API, max_length=200, description="Shown where the destination's state is shown")


def status(rt: Runtime, call: ApiRequest) -> DeliveryStatus:
    found = [DestinationJson.of_status(one) for one in all_destinations(rt)]
    return DeliveryStatus(enabled=rt.settings.features.delivery, destinations=found)


def pause(rt: Runtime, call: ApiRequest) -> PauseResult:
    name, reason = _known(rt, call), clean(call.body.reason, 200).strip() or BY_API
    return PauseResult.of(destination=name, changed=destinations.pause(rt, name, reason), pause_reason=reason)


def resume(rt: Runtime, call: ApiRequest) -> PauseResult:
    name = _known(rt, call)
    return PauseResult.of(destination=name, changed=destinations.resume(rt, name), pause_reason=None)


def test(rt: Runtime, call: ApiRequest) -> DestinationTest:
    return DestinationTest.of(destination_check.check(rt, _known(rt, call)))


def _known(rt: Runtime, call: ApiRequest) -> str:
    try:
        return configured_name(rt, call.path["destination"])
    except UnknownDestination as error:
        raise HttpProblem(404, str(error)) from error


_ABSENT = {404: "No destination with this name"}
_PATH = "/delivery/{destination}"

OPERATIONS = [
    Operation("GET", "/delivery", "getDelivery", "Every destination: its state and its backlog", status),
    Operation(
        "POST", f"{_PATH}/pause", "pauseDelivery", "Pause delivery, also across restarts, until it is resumed", pause,
        body=PauseRequest, refusals=_ABSENT,
    ),
    Operation(
        "POST", f"{_PATH}/resume", "resumeDelivery", "Resume a delivery that an operator paused", resume,
        refusals=_ABSENT,
    ),
    Operation(
        "POST", f"{_PATH}/test", "testDelivery", "Send a signed empty batch, and explain the response", test,
        refusals=_ABSENT | {409: "Its endpoint or its secret is not set"},
    ),
]  # fmt: skip
