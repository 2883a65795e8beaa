"""`/admin/inbound`: subscriptions, senders of webhooks and their messages, as `csi inbound` shows and changes them."""

from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import Field
from starlette.responses import Response

from csi import api_models
from csi.admin import inbound
from csi.admin.inbound import UnknownSender
from csi.config.durations import Seconds
from csi.config.setting_types import TierName
from csi.runtime import Runtime
from csi.status import push
from csi.store import inbound_messages
from csi.web.operation_definition import Limit, OperationList, RequestModel
from csi.web.responses import HttpProblem, reply

T = TypeVar("T")
MessageState = Literal["new", "done", "failed"]
ABSENT = {404: "No sender with this name"}
REFUSED = {409: "There is no inbound key yet, or the name is taken"}

OPERATIONS = OperationList()


class NewSender(RequestModel):
    """A sender to add. Composio's secret is in a variable of the host: `csi inbound add` names it."""

    name: str = Field(max_length=40, description="a-z, 0-9, dots, dashes and underscores")
    kind: Literal["events", "items"] = Field("events", description="Ready events, or raw items of a source")
    source: str | None = Field(None, max_length=64, description="With items: the source whose adapter normalizes them")
    watch: str | None = Field(None, max_length=2000, description="With items: the watch of items that name none")
    tier: TierName = Field("standard", description="The tier of events that name none")


class SenderRotation(RequestModel):
    """What is replaced."""

    grace: Seconds = Field(
        inbound.PREVIOUS_SECONDS, le=30 * 86_400, description="How long the previous secret is accepted: 1d, 0"
    )
    address: bool = Field(False, description="Replace the address, too; the old one ends at once")


class MessageQuery(RequestModel):
    """Which messages."""

    sender: str | None = Field(None, max_length=64)
    state: MessageState | None = None
    limit: Limit = 50


class ReplayRequest(RequestModel):
    """Messages by id, or all that failed."""

    ids: list[int] = Field([], max_length=inbound.MAX_REPLAYED)
    failed: bool = Field(False, description="All that could not be handled")
    sender: str | None = Field(None, max_length=64, description="With failed: only those of this sender")


@OPERATIONS.add("GET", "/inbound", "showInbound", "Subscriptions at hubs with missed pushes, and senders of webhooks")
def show(rt: Runtime) -> api_models.InboundStatus:
    return api_models.InboundStatus.of_facts(push.push_facts(rt), served=rt.settings.serves_hooks)


@OPERATIONS.add(
    "POST", "/inbound/senders", "addSender", "Add a sender. Its address and its secret are in this answer only",
    answer=api_models.SenderAccessJson, refusals=REFUSED,
)  # fmt: skip
def add(rt: Runtime, body: NewSender) -> Response:
    made = inbound.add(rt, body.name, body.kind, source=body.source, ref=body.watch, tier=body.tier)
    return reply(_access(made), 201)


@OPERATIONS.add(
    "POST", "/inbound/senders/{sender}/rotate", "rotateSender",
    "Make a new secret, which is in this answer only; the previous one is accepted during the grace",
    refusals=ABSENT | REFUSED,
)  # fmt: skip
def rotate(rt: Runtime, sender: str, body: SenderRotation) -> api_models.SenderAccessJson:
    return _access(_known(lambda: inbound.rotate(rt, sender, grace=body.grace, new_address=body.address)))


@OPERATIONS.add(
    "POST", "/inbound/senders/{sender}/test", "testSender", "A signed curl command with a sample message",
    refusals=ABSENT | REFUSED,
)  # fmt: skip
def test(rt: Runtime, sender: str) -> api_models.SignedRequest:
    command = _known(lambda: inbound.signed_request(rt, sender))
    return api_models.SignedRequest(sender=sender, command=command, served=rt.settings.serves_hooks)


@OPERATIONS.add(
    "DELETE", "/inbound/senders/{sender}", "removeSender", "End the address of a sender; its messages are kept",
    refusals=ABSENT,
)  # fmt: skip
def remove(rt: Runtime, sender: str) -> api_models.SenderRemoved:
    if not inbound.remove(sender):
        raise HttpProblem(404, "there is no sender with this name")
    return api_models.SenderRemoved(sender=sender)


@OPERATIONS.add("GET", "/inbound/messages", "listMessages", "The newest messages, without their content")
def list_messages(rt: Runtime, query: MessageQuery) -> api_models.InboundMessageList:
    found = inbound_messages.newest(query.limit, sender=query.sender, state=query.state)
    return api_models.InboundMessageList.of(messages=found)


@OPERATIONS.add(
    "GET", "/inbound/messages/{id}", "getMessage", "The content of one message",
    refusals={404: "No message with this number"},
)  # fmt: skip
def show_message(rt: Runtime, number: int) -> api_models.InboundMessageContent:
    content = inbound_messages.body_of(number)
    if content is None:
        raise HttpProblem(404, "there is no message with this number")
    return api_models.InboundMessageContent(id=number, content=content.decode("utf-8", "replace"))


@OPERATIONS.add(
    "POST", "/inbound/replay", "replayMessages",
    "Handle messages again; what they brought before is known and not delivered again",
)  # fmt: skip
def replay(rt: Runtime, body: ReplayRequest) -> api_models.InboundReplay:
    if bool(body.ids) == body.failed:
        raise HttpProblem(400, "ids: name the messages, or set failed")
    done = inbound.replay(rt, body.ids, sender=body.sender, all_failed=body.failed)
    return api_models.InboundReplay(messages=done)


def _access(made: inbound.SenderAccess) -> api_models.SenderAccessJson:
    return api_models.SenderAccessJson.of(made, served=made.is_served)


def _known(act: Callable[[], T]) -> T:
    try:
        return act()
    except UnknownSender as error:
        raise HttpProblem(404, str(error)) from error
