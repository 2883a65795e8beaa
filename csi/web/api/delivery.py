"""`/admin/delivery`: destinations, as `csi delivery` shows and changes them."""

from pydantic import Field

from csi.admin import destinations
from csi.api_models import DeliveryStatus, DestinationJson, DestinationTest, PauseResult
from csi.doctor import destination_check
from csi.ingester.text import clean
from csi.runtime import Runtime
from csi.status.destinations import UnknownDestination, all_destinations, configured_name
from csi.web.operation_definition import OperationList, RequestModel
from csi.web.responses import HttpProblem

BY_API = "by the admin API"
ABSENT = {404: "No destination with this name"}

OPERATIONS = OperationList()


class PauseRequest(RequestModel):
    """Why delivery is paused."""

    reason: str = Field(BY_API, max_length=200, description="Shown where the destination's state is shown")


@OPERATIONS.add("GET", "/delivery", "getDelivery", "Every destination: its state and its backlog")
def status(rt: Runtime) -> DeliveryStatus:
    found = [DestinationJson.of_status(one) for one in all_destinations(rt)]
    return DeliveryStatus(enabled=rt.settings.features.delivery, destinations=found)


@OPERATIONS.add(
    "POST", "/delivery/{destination}/pause", "pauseDelivery",
    "Pause delivery, also across restarts, until it is resumed", refusals=ABSENT,
)  # fmt: skip
def pause(rt: Runtime, destination: str, body: PauseRequest) -> PauseResult:
    name, reason = _known(rt, destination), clean(body.reason, 200).strip() or BY_API
    return PauseResult.of(destination=name, changed=destinations.pause(rt, name, reason), pause_reason=reason)


@OPERATIONS.add(
    "POST", "/delivery/{destination}/resume", "resumeDelivery", "Resume a delivery that is paused or throttled",
    refusals=ABSENT,
)  # fmt: skip
def resume(rt: Runtime, destination: str) -> PauseResult:
    name = _known(rt, destination)
    return PauseResult.of(destination=name, changed=destinations.resume(rt, name), pause_reason=None)


@OPERATIONS.add(
    "POST", "/delivery/{destination}/test", "testDelivery", "Send a signed empty batch, and explain the response",
    refusals=ABSENT | {409: "Its endpoint or its secret is not set"},
)  # fmt: skip
def test(rt: Runtime, destination: str) -> DestinationTest:
    return DestinationTest.of(destination_check.check(rt, _known(rt, destination)))


def _known(rt: Runtime, destination: str) -> str:
    try:
        return configured_name(rt, destination)
    except UnknownDestination as error:
        raise HttpProblem(404, str(error)) from error
