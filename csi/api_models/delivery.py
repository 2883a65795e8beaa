"""Destinations as JSON: their state, and the result of a connection test."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import AliasPath, Field

from csi.api_models.base import ApiModel, Redacted, RedactedOrNone, RenamedKeys, Seconds, TimeOrNone

if TYPE_CHECKING:
    from csi.status.destinations import DestinationStatus

OLD_STATE = Field(json_schema_extra={"deprecated": True}, description="Deprecated: renamed to `state`.")
StateWord = Literal["accepting", "untested", "paused", "throttled", "circuit_open", "half_open"]


class LaneJson(ApiModel):
    """One delivery queue of a destination."""

    lane: str = Field(validation_alias="name")
    pending: int
    in_flight: int
    oldest_seen_at: TimeOrNone
    next_due_at: TimeOrNone


class DestinationBrief(ApiModel):
    """One destination: whether it accepts events, and what is queued for it."""

    destination: str = Field(validation_alias="name")
    state: StateWord
    gate: str = OLD_STATE
    reason: RedactedOrNone = Field(validation_alias="cause")
    pending: int
    in_flight: int
    dead_letters: int = Field(validation_alias="dead")
    last_success_at: TimeOrNone = Field(validation_alias=AliasPath("row", "last_success_at"))


class DestinationJson(
    RenamedKeys, renamed={"held": "pause_reason", "held_at": "paused_at", "paused_until": "throttled_until"}
):
    """One destination with its circuit breaker and its lanes."""

    destination: str = Field(validation_alias="name")
    configured: bool = Field(validation_alias="is_configured")
    state: StateWord
    gate: str = OLD_STATE
    pause_reason: RedactedOrNone = Field(validation_alias=AliasPath("row", "paused_reason"))
    paused_at: TimeOrNone = Field(validation_alias=AliasPath("row", "paused_at"))
    breaker: Literal["closed", "open"] = Field(validation_alias=AliasPath("row", "circuit"))
    breaker_reason: RedactedOrNone = Field(validation_alias="breaker_words")
    opened_at: TimeOrNone = Field(validation_alias=AliasPath("row", "opened_at"))
    next_probe_at: TimeOrNone = Field(validation_alias=AliasPath("row", "next_probe_at"))
    throttled_until: TimeOrNone
    canonical_json: str = Field(validation_alias="form_words")
    last_success_at: TimeOrNone = Field(validation_alias=AliasPath("row", "last_success_at"))
    last_failure_at: TimeOrNone = Field(validation_alias=AliasPath("row", "last_failure_at"))
    last_error: RedactedOrNone
    failing_since: TimeOrNone = Field(validation_alias=AliasPath("row", "failing_since"))
    last_answer_at: TimeOrNone = Field(validation_alias=AliasPath("row", "answered_at"))
    last_test_at: TimeOrNone = Field(validation_alias=AliasPath("row", "tested_at"))
    certificate_expires_at: TimeOrNone = Field(validation_alias=AliasPath("row", "certificate_expires_at"))
    confirms_counts: bool | None = Field(validation_alias=AliasPath("row", "confirms_counts"))
    pending: int
    in_flight: int
    dead_letters: int = Field(validation_alias="dead")
    lanes: list[LaneJson]

    @classmethod
    def of_status(cls, one: "DestinationStatus") -> Self:
        return cls.of(one, throttled_until=one.row.throttled_until if one.state == "throttled" else None)


class DeliveryStatus(ApiModel):
    """Whether delivery is switched on, and every destination."""

    enabled: bool
    destinations: list[DestinationJson]


class PauseResult(RenamedKeys, renamed={"held": "pause_reason"}):
    """What pausing or resuming a destination did."""

    destination: str
    changed: bool
    pause_reason: str | None


class DestinationTest(ApiModel):
    """The response to a signed empty batch, explained."""

    ok: bool = Field(validation_alias="is_good")
    destination: str
    url: Redacted
    status: int | None
    seconds: Seconds
    text: Redacted
    forms: str
    forms_text: str
    clock_ahead: float | None
    clock_text: str
