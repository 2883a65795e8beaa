"""Events and their timelines as JSON."""

from typing import Literal

from pydantic import AliasChoices, Field

from csi.api_models.base import (
    ApiModel,
    ForeignText,
    JsonColumn,
    PreciseTime,
    Redacted,
    RedactedDetails,
    RedactedOrNone,
    RenamedKeys,
    TextOrNone,
    Time,
    TimeOrNone,
)  # fmt: skip

EventState = Literal["pending", "in_flight", "delivered", "dead", "quarantined"]


class EventJson(ApiModel):
    """An event as it is sent, and where it is."""

    id: int
    event_id: str
    dedupe_key: str
    source: str
    event_type: str
    occurred_at: Time
    received_at: Time
    emitted_at: TimeOrNone
    subject: JsonColumn = Field(validation_alias="subject_json")
    routing: JsonColumn = Field(validation_alias="routing_json")
    metadata: JsonColumn = Field(validation_alias="metadata_json")
    raw_ref: str | None
    contract_version: str
    state: EventState
    tier: str
    first_seen_at: Time
    delivered_at: TimeOrNone
    removed_at: TimeOrNone = None
    """Since when its video is deleted or private, if a hub announced it."""


class EventList(ApiModel):
    """A page of events."""

    events: list[EventJson]
    next: int | None


class TimelineDestination(ApiModel):
    """Where an event is on its way to one destination."""

    destination: str
    state: str
    reason: Redacted


class TimelineStep(ApiModel):
    """One thing that happened to an item."""

    at: PreciseTime
    what: str
    text: Redacted
    details: RedactedDetails


class TimelineJson(ApiModel):
    """The history of one item, from its first sighting to its receipt."""

    dedupe_key: str = Field(validation_alias=AliasChoices("key", "dedupe_key"))
    event_id: str | None
    state: str
    reason: Redacted
    source: str | None
    event_type: str | None
    title: ForeignText
    url: ForeignText
    watch: ForeignText
    destinations: list[TimelineDestination] = Field(validation_alias=AliasChoices("destinations", "deliveries"))
    steps: list[TimelineStep]


class EventDetail(EventJson, RenamedKeys, renamed={"story": "timeline"}):
    """An event with its timeline."""

    timeline: TimelineJson


class Trace(ApiModel):
    """The timelines of the items that a query found."""

    query: str
    found: int
    more: bool
    items: list[TimelineJson]


class ResendResultJson(ApiModel):
    """Whether one event is queued again for one destination."""

    event_id: str
    destination: TextOrNone
    sent: bool = Field(validation_alias=AliasChoices("sent", "is_sent"))
    note: Redacted


class ResendReport(ApiModel):
    """What is sent again. `results` has at most 500 of them, those that failed first."""

    dry_run: bool
    events: int
    sent: int
    failed: int
    destinations: list[str]
    results: list[ResendResultJson]
    notes: list[Redacted]


class AttemptJson(RenamedKeys, renamed={"answer": "response"}):
    """One HTTP request of a batch, and its response."""

    started_at: Time
    finished_at: TimeOrNone
    attempt: int
    request_id: str
    form: str
    outcome: str
    """For this event: a batch that was accepted in part may have refused it."""
    batch_outcome: str
    status: int | None
    reason: RedactedOrNone = Field(validation_alias="reason_for_event")
    response: RedactedOrNone = Field(validation_alias=AliasChoices("response", "answer"))
