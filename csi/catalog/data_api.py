"""The Data API for the catalogue: each call is booked for its job, within the catalogue's share of the day's units."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from csi.adapters.youtube.api import BATCH, ApiPage, ApiSettings, DataApi
from csi.catalog.api_response_fields import channel_facts, video_facts
from csi.errors import SourceError
from csi.jobs.job_kinds import KINDS
from csi.jobs.run_job import JobLeaseLost
from csi.runtime import CatalogUnits, Runtime
from csi.store import api_units
from csi.store.catalog import channels, jobs, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.jobs import CatalogJob
from csi.store.catalog.videos import VideoFacts

UNITS = "catalog_units"
"""A counter per Pacific day: the units that the catalogue used."""

CHANNEL_PARTS = "snippet,contentDetails,statistics"
VIDEO_PARTS = "snippet,contentDetails,statistics,status"
HOUR, DAY_HOURS = 3600.0, 24
UNIT_COUNT_MAX_AGE = 300.0
MOST_KEPT = 0.75
"""The largest part of the share that is reserved for refreshes: a quarter is always left for backfills."""

NO_KEY = "the catalogue needs an API key; set YOUTUBE_API_KEY (or the variable that api_key_env names)"
TOO_MUCH = "more than the limit; raise catalog.units_per_day or pause channels"
SHARE_SPENT = "the catalogue's share of today's API units is spent; its jobs resume after midnight Pacific time"
KEPT_BACK = "the rest of the catalogue's units today is reserved for hourly and daily refreshes"


@dataclass(frozen=True)
class CatalogShare:
    """The catalogue's share of a Pacific day's units."""

    limit: int
    used: int
    needed: int
    """Units per day that keep everything fresh."""

    @property
    def is_short(self) -> bool:
        return self.needed > self.limit


def share_of(rt: Runtime) -> CatalogShare:
    return CatalogShare(rt.settings.catalog.units_per_day, api_units.share_used(UNITS, rt.now()), sum(_daily_units()))


def open_api(rt: Runtime, job: CatalogJob | None = None) -> DataApi:
    """The API of the first source that has a key. Units are booked for `job`."""
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
    """The channels, of at most 50, that the API shows."""
    page = api.page("channels", {"part": CHANNEL_PARTS, "id": ",".join(ids), "maxResults": BATCH}) or ApiPage(())
    return {facts.id: facts for row in page.items if (facts := channel_facts(row)) and facts.id in ids}


def read_videos(api: DataApi, ids: Sequence[str]) -> dict[str, VideoFacts]:
    """The videos, of at most 50, that the API shows. With ids the API refuses `maxResults` here."""
    page = api.page("videos", {"part": VIDEO_PARTS, "id": ",".join(ids)}) or ApiPage(())
    return {facts.id: facts for row in page.items if (facts := video_facts(row)) and facts.id in ids}


def _daily_units() -> tuple[int, int, int]:
    """Units per day that keep the tracked channels and videos fresh: hot and medium videos, older ones, channels."""
    hot = DAY_HOURS * ceil(videos.in_tier("hot") / BATCH)
    medium, tail = _spread(videos.in_tier("medium")), _spread(ceil(videos.in_tier("tail") / 7))
    return hot + medium, tail, ceil(channels.refreshed_count() / BATCH)


def _spread(number: int) -> int:
    """API calls for `number` videos a day, spread over its hours."""
    return min(number, DAY_HOURS) * ceil(ceil(number / DAY_HOURS) / BATCH)


def _charge(rt: Runtime, job: CatalogJob | None, units: int) -> None:
    """Book units before the call is made: a crash then wastes units, and never exceeds the limit."""
    now, limit, share = rt.now(), rt.api_limit(), rt.settings.catalog.units_per_day
    # Extends the lease, too: a job that makes many calls keeps it.
    if job is not None and not jobs.heartbeat(job, now):
        raise JobLeaseLost("lost before an API call: no unit is spent")
    yields = job is not None and job.type in KINDS and KINDS[job.type].yields
    kept = min(_reserve(rt, now), int(share * MOST_KEPT)) if yields else 0
    if api_units.share_used(UNITS, now) + units + kept > share:
        raise SourceError(KEPT_BACK if kept else SHARE_SPENT, kind="budget")
    if not rt.has_spare(units) or not api_units.book_share(units, limit, UNITS, share, now):
        raise SourceError(SHARE_SPENT, kind="budget")
    if job is not None:
        jobs.add_units(job.id, units)


def _reserve(rt: Runtime, now: float) -> int:
    """Units that hourly and daily refreshes still need today. Computed every few minutes."""
    counted = rt.process.catalog_units
    if counted is None or not 0 <= now - counted.counted_at < UNIT_COUNT_MAX_AGE:
        hourly, _, daily = _daily_units()
        counted = rt.process.catalog_units = CatalogUnits(now, hourly, daily)
    hours = ceil((api_units.day_ends(now) - now) / HOUR)
    return ceil(counted.hourly * hours / DAY_HOURS) + counted.channels
