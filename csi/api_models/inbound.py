"""JSON of `csi inbound`: subscriptions, senders and messages."""

from typing import TYPE_CHECKING, Self

from csi.api_models.base import ApiModel, RedactedOrNone, Time, TimeOrNone

if TYPE_CHECKING:
    from csi.status.push import PushFacts, WatchSubscription


class SubscriptionJson(ApiModel):
    """How one watch is pushed. `unbroken`: confirmed pushes since the last miss."""

    source: str
    watch: str
    kind: str
    state: str
    topic: str | None
    hub_url: str | None
    verified_at: TimeOrNone
    expires_at: TimeOrNone
    due_at: TimeOrNone
    last_push_at: TimeOrNone
    pushes: int
    confirmed: int
    misses: int
    near_misses: int
    unbroken: int
    stretched: bool
    failures: int
    last_error: RedactedOrNone

    @classmethod
    def of_watch(cls, one: "WatchSubscription") -> Self:
        return cls.of(one.row, source=one.source, watch=one.watch)


class SenderJson(ApiModel):
    """One sender of webhooks; its address and its secret are not shown."""

    name: str
    kind: str
    source: str | None
    ref: str | None
    tier: str
    secret_env: str | None
    previous_until: TimeOrNone
    accepted: int
    last_accepted_at: TimeOrNone
    refused: int
    last_refusal: str | None
    created_at: Time


class InboundStatus(ApiModel):
    """Who pushes to this installation."""

    served: bool
    subscriptions: list[SubscriptionJson]
    senders: list[SenderJson]
    failed_messages: int

    @classmethod
    def of_facts(cls, found: "PushFacts", *, served: bool) -> Self:
        return cls.of(
            served=served,
            subscriptions=[SubscriptionJson.of_watch(one) for one in found.subscriptions],
            senders=[SenderJson.of(one) for one in found.senders],
            failed_messages=sum(one.messages for one in found.failed),
        )


class InboundMessageJson(ApiModel):
    """One message. Its content is shown by `csi inbound messages ID`."""

    id: int
    sender: str
    kind: str
    message_id: str
    bytes: int
    received_at: Time
    state: str
    result: RedactedOrNone
    settled_at: TimeOrNone


class InboundMessageList(ApiModel):
    """The newest messages first."""

    messages: list[InboundMessageJson]


class SenderAccessJson(ApiModel):
    """What a new sender needs, shown once."""

    name: str
    kind: str
    url: str
    secret: str | None
    served: bool


class SenderRemoved(ApiModel):
    """A sender whose address ended."""

    sender: str


class SignedRequest(ApiModel):
    """A curl command with a sample message, valid for five minutes."""

    sender: str
    command: str
    served: bool


class InboundMessageContent(ApiModel):
    """What a sender sent, as text."""

    id: int
    content: str


class InboundReplay(ApiModel):
    """Messages that are handled again."""

    messages: list[int]
