"""The Data API for the catalogue: every call booked for its job, out of the catalogue's share of the day."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from csi.adapters.youtube.api import BATCH, ApiItem, ApiPage, ApiSettings, DataApi
from csi.catalog.api_fields import channel_facts, video_facts
from csi.errors import SourceError
from csi.jobs.job_kinds import KINDS
from csi.jobs.run_job import JobLeaseLost
from csi.runtime import Runtime
from csi.store import api_units
from csi.store.catalog import channels, jobs, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.jobs import CatalogJob
from csi.store.catalog.videos import VideoFacts

UNITS = "catalog_units"
"""A counter for each Pacific day: what the catalogue used of it."""

CHANNEL_PARTS = "snippet,contentDetails,statistics"
VIDEO_PARTS = "snippet,contentDetails,statistics,status"
HOUR, DAY_HOURS = 3600.0, 24
LOOK_SECONDS = 300.0
MOST_KEPT = 0.75
"""Of the catalogue's units that work which yields leaves to refreshes: a quarter always moves a backfill on."""

NO_KEY = "the catalogue needs an API key; set YOUTUBE_API_KEY (or the variable that api_key_env names)"
TOO_MUCH = "too many; raise catalog.units_per_day or pause some"
SHARE_SPENT = "the catalogue's share of today's API units is spent; its jobs go on after midnight Pacific time"
KEPT_BACK = "what is left of the catalogue's units today is kept for hourly and daily refreshes"


@dataclass(frozen=True)
class DailyUnits:
    """Units a day that keeping the catalogue fresh takes."""

    hot: int
    medium: int
    tail: int
    channels: int

    @property
    def total(self) -> int:
        return self.hot + self.medium + self.tail + self.channels


@dataclass(frozen=True)
class CatalogShare:
    """The catalogue's part of a Pacific day's units."""

    limit: int
    used: int
    needed: int
    """What keeping everything fresh takes a day."""

    @property
    def is_short(self) -> bool:
        return self.needed > self.limit


def share_of(rt: Runtime) -> CatalogShare:
    return CatalogShare(rt.settings.catalog.units_per_day, api_units.share_used(UNITS, rt.now()), daily_units().total)


def open_api(rt: Runtime, job: CatalogJob | None = None) -> DataApi:
    """The first source's API that has a key. `job`: who pays."""
    for name, settings in rt.settings.sources.items():
        if not isinstance(settings, ApiSettings):
            continue
        adapter = rt.adapter(name)
        api: DataApi | None = getattr(adapter, "api", None)
        shared = adapter.settings
        if api is not None and api.usable and isinstance(shared, ApiSettings):
            return DataApi(shared, replace(adapter.tools, charge=lambda units: _charge(rt, job, units)))
    raise SourceError(NO_KEY, kind="auth")


def read_channels(api: DataApi, ids: Sequence[str]) -> dict[str, ChannelFacts]:
    """Those of at most 50 that the API shows."""
    page = api.page("channels", {"part": CHANNEL_PARTS, "id": ",".join(ids), "maxResults": BATCH})
    return {facts.id: facts for row in _rows(page) if (facts := channel_facts(row)) and facts.id in ids}


def read_videos(api: DataApi, ids: Sequence[str]) -> dict[str, VideoFacts]:
    """Those of at most 50 that the API shows; `maxResults` may not stand beside ids here."""
    page = api.page("videos", {"part": VIDEO_PARTS, "id": ",".join(ids)})
    return {facts.id: facts for row in _rows(page) if (facts := video_facts(row)) and facts.id in ids}


def daily_units() -> DailyUnits:
    """What a day costs with the channels and videos that are tracked now."""
    return DailyUnits(
        hot=DAY_HOURS * ceil(videos.in_tier("hot") / BATCH),
        medium=_spread(videos.in_tier("medium"), DAY_HOURS),
        tail=_spread(ceil(videos.in_tier("tail") / 7), DAY_HOURS),
        channels=ceil(channels.refreshed_count() / BATCH),
    )


def _spread(number: int, hours: int) -> int:
    """Calls for so many videos a day that are spread over its hours."""
    return min(number, hours) * ceil(ceil(number / hours) / BATCH) if number else 0


def _charge(rt: Runtime, job: CatalogJob | None, units: int) -> None:
    now, limit, share = rt.now(), rt.api_limit(), rt.settings.catalog.units_per_day
    if job is not None and not jobs.heartbeat(job, now):
        raise JobLeaseLost("lost before a call: no unit is spent for it")
    yields = job is not None and job.type in KINDS and KINDS[job.type].yields
    kept = min(_reserve(rt, now), int(share * MOST_KEPT)) if yields else 0
    if api_units.share_used(UNITS, now) + units + kept > share:
        raise SourceError(KEPT_BACK if kept else SHARE_SPENT, kind="budget")
    if not rt.has_spare(units) or not api_units.book_share(units, limit, UNITS, share, now):
        raise SourceError(SHARE_SPENT, kind="budget")
    if job is not None:
        jobs.add_units(job.id, units)


def _reserve(rt: Runtime, now: float) -> int:
    """What refreshes by the hour and the day still need today. Worked out now and then."""
    looked_at: float = rt.memo.get("catalog_looked_at", float("-inf"))
    if not 0 <= now - looked_at < LOOK_SECONDS:
        rt.memo |= {"catalog_looked_at": now, "catalog_needs": daily_units()}
    found: DailyUnits = rt.memo["catalog_needs"]
    hours = ceil((api_units.day_ends(now) - now) / HOUR)
    return ceil((found.hot + found.medium) * hours / DAY_HOURS) + found.channels


def _rows(page: ApiPage | None) -> tuple[ApiItem, ...]:
    return page.items if page is not None else ()
