"""The objectives and their figures as JSON."""

from typing import Annotated

from pydantic import AliasPath, BeforeValidator, Field

from csi.api_models.base import ApiModel, Ratio, Seconds, Time, TimeOrNone


class EventCounts(ApiModel):
    """What became of the events of a window."""

    seen: int
    delivered: int
    dead: int
    waiting: int


# ── SLO ─────────────────────────────────────────────────────────────────────────────────────────────────


class SloFigure(ApiModel):
    """One figure and its target; null where nothing was counted."""

    target: float
    value: Ratio
    met: bool | None = Field(validation_alias="is_met")


class SuccessFigure(SloFigure, EventCounts):
    """The share of settled events that were delivered."""


class DuplicateFigure(SloFigure):
    """The share of events that may have been accepted twice."""

    sent: int = Field(validation_alias=AliasPath("counts", "sent"))
    reported: int = Field(validation_alias=AliasPath("counts", "reported"))
    possible: int = Field(validation_alias=AliasPath("counts", "possible"))
    resent: int = Field(validation_alias=AliasPath("counts", "resent"))


class UptimeFigure(SloFigure):
    """The share of time in which the worker was alive."""

    known_since: TimeOrNone = Field(validation_alias=AliasPath("attendance", "since"))
    interruptions: Annotated[int, BeforeValidator(len)] = Field(validation_alias=AliasPath("attendance", "gaps"))
    down_seconds: Seconds = Field(validation_alias=AliasPath("attendance", "down_seconds"))


class Percentiles(ApiModel):
    """Percentiles in seconds."""

    p50: Seconds
    p95: Seconds
    p99: Seconds


class TierLatencyJson(ApiModel):
    """How long the events of one tier took."""

    tier: str
    target_p95_seconds: float | None = Field(validation_alias="target")
    met: bool | None = Field(validation_alias="is_met")
    events: int
    old_items: int
    late: int
    occurred_to_seen: Percentiles = Field(validation_alias="to_seen")
    seen_to_accepted: Percentiles = Field(validation_alias="to_accepted")
    occurred_to_accepted: Percentiles = Field(validation_alias="total")


class SloReport(ApiModel):
    """The figures of PRD §6 over one window."""

    since: Time
    until: Time
    rows_since: Time
    met: bool | None = Field(validation_alias="is_met")
    delivery: SuccessFigure = Field(validation_alias="success")
    duplicates: DuplicateFigure
    uptime: UptimeFigure
    latency: list[TierLatencyJson] = Field(validation_alias="latencies")
    notes: list[str]
