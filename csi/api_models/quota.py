"""API units and poll intervals as JSON."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from csi.api_models.base import ApiModel, RenamedKeys, Time, TimeOrNone
from csi.catalog import data_api
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.status.host_pace import host_paces


class QuotaBrief(ApiModel):
    """API units of this Pacific day."""

    day: str
    limit: int
    used: int
    left: int
    low: bool = Field(validation_alias="is_low")


class HostPaceJson(ApiModel):
    """A host whose requests are spaced. `learned`: it refused requests, so the spacing is wider than configured."""

    host: str
    spacing_seconds: float
    learned: bool = Field(validation_alias="is_learned")
    next_at: TimeOrNone
    plan: str | None


# ── quota ───────────────────────────────────────────────────────────────────────────────────────────────


class PollInterval(RenamedKeys, renamed={"as_wished": "as_configured"}):
    """Watches that are polled at one interval. `seconds` null: not at all."""

    seconds: Annotated[float | None, BeforeValidator(lambda seconds: None if seconds == float("inf") else seconds)]
    watches: int
    as_configured: bool = Field(validation_alias="is_fast")


class CatalogShareJson(RenamedKeys, renamed={"needed_a_day": "needed_per_day"}):
    """The catalogue's share of the API units, and the bucket of `videos:batchGetStats` as `stats_…`."""

    limit: int
    used: int
    needed_per_day: int = Field(validation_alias="needed")
    short: bool = Field(validation_alias="is_short")
    stats_limit: int
    stats_used: int
    stats_needed_per_day: int = Field(validation_alias="stats_needed")
    stats_refused: bool


class NoQuota(ApiModel):
    """No enabled source uses API units."""

    enabled: Literal[False] = False
    host_pacing: list[HostPaceJson]


class QuotaJson(QuotaBrief):
    """API units of this Pacific day, and the intervals that they allow."""

    enabled: Literal[True] = True
    buffer: int
    ends_at: Time
    lasts_until: Time
    units_per_hour: Annotated[float, BeforeValidator(lambda units: round(units, 1))] = Field(
        validation_alias="per_hour"
    )
    planned_units: int
    intervals: list[PollInterval] = Field(validation_alias="groups")
    forecast: str
    warning: str | None
    urgent: str | None
    catalogue: CatalogShareJson
    host_pacing: list[HostPaceJson]


def quota(rt: Runtime) -> QuotaJson | NoQuota:
    """API units of this Pacific day, with the catalogue's share, and the pace of each host that is spaced."""
    found, paces = quota_schedule.forecast(rt, rt.now()), [HostPaceJson.of(one) for one in host_paces(rt)]
    if found is None:
        return NoQuota(host_pacing=paces)
    more = {"forecast": quota_schedule.sentence(found), "catalogue": data_api.share_of(rt), "host_pacing": paces}
    return QuotaJson.of(found, **more)
