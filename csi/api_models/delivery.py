"""Destinations as JSON: their state, their settings and requests, and the results of tests and changes."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import AliasPath, Field

from csi.api_models.base import ApiModel, Ratio, Redacted, RedactedOrNone, RenamedKeys, Seconds, Time, TimeOrNone

if TYPE_CHECKING:
    from csi.status.destinations import DestinationStatus

OLD_STATE = Field(json_schema_extra={"deprecated": True}, description="Deprecated: renamed to `state`.")
StateWord = Literal["accepting", "untested", "unknown", "paused", "throttled", "circuit_open", "half_open"]


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


# ── `csi destinations` and /admin/destinations ──────────────────────────────────────────────────────────


class DestinationSummaryJson(ApiModel):
    """One destination with its requests of a day."""

    destination: str = Field(validation_alias="name")
    origin: Literal["config", "command", "agent"]
    expires_at: TimeOrNone = None
    state: StateWord = Field(validation_alias=AliasPath("status", "state"))
    reason: RedactedOrNone = Field(validation_alias=AliasPath("status", "cause"))
    url: Redacted
    pending: int = Field(validation_alias="queued")
    dead_letters: int = Field(validation_alias=AliasPath("status", "dead"))
    requests: int = Field(validation_alias=AliasPath("day", "requests"))
    failed: int = Field(validation_alias=AliasPath("day", "failed"))
    success: Ratio = Field(validation_alias=AliasPath("day", "success"))
    p50_seconds: Seconds = Field(validation_alias=AliasPath("day", "p50_seconds"))
    p95_seconds: Seconds = Field(validation_alias=AliasPath("day", "p95_seconds"))


class DestinationSummaries(ApiModel):
    """Every destination."""

    destinations: list[DestinationSummaryJson]


class SecretRotation(ApiModel):
    """The overlap of the last rotation, and when the receiver last needed the previous secret."""

    previous_until: TimeOrNone
    previous_needed_at: TimeOrNone
    signs_with_both: bool = Field(description="Which secret the receiver verifies is not known")


class DestinationRequest(ApiModel):
    """One request to a destination."""

    started_at: Time
    url: Redacted = Field(description="Where it was sent to; empty: by version 1.0")
    outcome: str
    status: int | None
    seconds: Seconds
    events: int | None
    reason: RedactedOrNone


class DestinationDetail(DestinationSummaryJson):
    """One destination with its settings, without secrets, and its last requests."""

    settings: dict[str, Any]
    rotation: SecretRotation | None
    attempts: list[DestinationRequest]


class DestinationChanged(ApiModel):
    """The settings of a destination that was added or changed."""

    destination: str
    settings: dict[str, Any]
    secret: str | None = Field(description="A secret that was made for it, shown this one time")


class DestinationRemoved(ApiModel):
    """What removing a destination did, or would do."""

    destination: str
    queued_events: int = Field(description="Events that are not sent there")
    dry_run: bool


class SecretRotated(ApiModel):
    """The new secret of a destination, shown this one time."""

    destination: str
    secret: str
    previous_until: TimeOrNone = Field(description="Until then the previous secret is used beside it")


class SampleTestJson(ApiModel):
    """The response to a sample event, explained."""

    ok: bool = Field(validation_alias="is_good")
    destination: str
    url: Redacted
    status: int | None
    seconds: Seconds
    text: Redacted
