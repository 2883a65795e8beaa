"""The Data API for the catalogue: each call is booked for its job, within the catalogue's share of the day's units.

Statistics are read by `videos:batchGetStats`, which has a daily quota of its own, the bucket `stats`. Where it cannot
be used, `videos.list` serves them out of the main bucket.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from csi.adapters.youtube.api import BATCH, ApiPage, ApiSettings, DataApi
from csi.catalog.api_response_fields import channel_facts, video_counts, video_facts
from csi.catalog.refresh_schedule import DETAILS_DAYS
from csi.errors import SourceError
from csi.jobs.job_kinds import KINDS
from csi.jobs.run_job import JobLeaseLost
from csi.logs import log
from csi.runtime import CatalogUnits, Runtime
from csi.store import api_units
from csi.store.catalog import channels, jobs, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.jobs import CatalogJob
from csi.store.catalog.videos import VideoCounts, VideoFacts

UNITS = "catalog_units"
"""A counter per Pacific day: the units that the catalogue used."""

CHANNEL_PARTS = "snippet,contentDetails,statistics"
VIDEO_PARTS = "snippet,contentDetails,statistics,status"
STATS_METHOD = "videos:batchGetStats"
STATS_PARTS = "statistics,contentDetails"
MAY_PASS = ("transient", "throttled", "quota", "budget")
"""Failures after which the method is called again; any other refuses it for the rest of the day."""
HOUR, DAY_HOURS = 3600.0, 24
UNIT_COUNT_MAX_AGE = 300.0
MOST_KEPT = 0.75
"""The largest part of the share that is reserved for refreshes: a quarter is always left for backfills."""

NO_KEY = "the catalogue needs an API key; set YOUTUBE_API_KEY (or the variable that api_key_env names)"
TOO_MUCH = "more than the limit; raise catalog.units_per_day or pause channels"
SHARE_SPENT = "the catalogue's share of today's API units is spent; its jobs resume after midnight Pacific time"
STATS_SPENT = "today's units of videos:batchGetStats are spent"
KEPT_BACK = "the rest of the catalogue's units today is reserved for hourly and daily refreshes"


@dataclass(frozen=True)
class CatalogShare:
    """The catalogue's share of a Pacific day's units."""

    limit: int
    used: int
    needed: int
    """Units per day that keep everything fresh."""
    stats_limit: int
    """The bucket of `videos:batchGetStats`. 0: it is switched off."""
    stats_used: int
    stats_needed: int
    stats_refused: bool
    """The API refused the method today; `videos.list` serves the statistics, out of the main bucket."""

    @property
    def is_short(self) -> bool:
        return self.needed > self.limit


def share_of(rt: Runtime) -> CatalogShare:
    now, settings = rt.now(), rt.settings.catalog
    return CatalogShare(
        limit=settings.units_per_day,
        used=api_units.share_used(UNITS, now),
        needed=sum(_daily_units(rt)),
        stats_limit=settings.stats_units_per_day,
        stats_used=api_units.used(now, "stats"),
        stats_needed=sum(_statistics_a_day()) if settings.stats_units_per_day else 0,
        stats_refused=api_units.is_method_refused("stats", now),
    )


def uses_stats_bucket(rt: Runtime) -> bool:
    """Whether statistics are read by `videos:batchGetStats` now."""
    now, limit = rt.now(), rt.settings.catalog.stats_units_per_day
    return api_units.used(now, "stats") < limit and not api_units.is_method_refused("stats", now)


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


def read_counts(rt: Runtime, job: CatalogJob, ids: Sequence[str]) -> dict[str, VideoCounts] | None:
    """Statistics of at most 50 videos, out of their own bucket. None: the method cannot be used; read the videos."""
    if not uses_stats_bucket(rt):
        return None
    try:
        # Like `open_api`, with units of the bucket `stats`. What this method is refused says nothing about other
        # calls, so neither a used-up quota nor refused access is recorded for them.
        api, limit = open_api(rt, job), rt.settings.catalog.stats_units_per_day
        stats_api = api.with_tools(
            charge=lambda units: _charge_stats(rt, job, units),
            exhaust=lambda: api_units.exhaust(limit, rt.now(), "stats"),
            note_access=lambda name, error: None,
        )
        page = stats_api.page(STATS_METHOD, {"part": STATS_PARTS, "id": ",".join(ids)}) or ApiPage(())
    except SourceError as error:
        if error.kind not in MAY_PASS:
            api_units.note_method_refused("stats", rt.now())
        log.warning("statistics are read by videos.list", method=STATS_METHOD, error=str(error), kind=error.kind)
        return None
    return {counts.id: counts for row in page.items if (counts := video_counts(row)) and counts.id in ids}


def read_channels(api: DataApi, ids: Sequence[str]) -> dict[str, ChannelFacts]:
    """The channels, of at most 50, that the API shows."""
    page = api.page("channels", {"part": CHANNEL_PARTS, "id": ",".join(ids), "maxResults": BATCH}) or ApiPage(())
    return {facts.id: facts for row in page.items if (facts := channel_facts(row)) and facts.id in ids}


def read_videos(api: DataApi, ids: Sequence[str]) -> dict[str, VideoFacts]:
    """The videos, of at most 50, that the API shows. With ids the API refuses `maxResults` here."""
    page = api.page("videos", {"part": VIDEO_PARTS, "id": ",".join(ids)}) or ApiPage(())
    return {facts.id: facts for row in page.items if (facts := video_facts(row)) and facts.id in ids}


def _daily_units(rt: Runtime) -> tuple[int, int, int]:
    """Main units per day that keep the tracked channels and videos fresh: hot and medium videos, older ones, channels.
    Beside the bucket of statistics, they pay only for the details."""
    hourly, tail = _statistics_a_day()
    if uses_stats_bucket(rt):
        hot, medium, older = (_spread(ceil(videos.in_tier(tier) / days)) for tier, days in DETAILS_DAYS.items())
        hourly, tail = hot + medium, older
    return hourly, tail, ceil(channels.refreshed_count() / BATCH)


def _statistics_a_day() -> tuple[int, int]:
    """Calls per day that refresh all statistics: of hot and medium videos, and of older ones."""
    hot = DAY_HOURS * ceil(videos.in_tier("hot") / BATCH)
    return hot + _spread(videos.in_tier("medium")), _spread(ceil(videos.in_tier("tail") / 7))


def _spread(number: int) -> int:
    """API calls for `number` videos a day, spread over its hours."""
    return min(number, DAY_HOURS) * ceil(ceil(number / DAY_HOURS) / BATCH)


def _charge(rt: Runtime, job: CatalogJob | None, units: int) -> None:
    """Book units before the call is made: a crash then wastes units, and never exceeds the limit."""
    now, limit, share = rt.now(), rt.api_limit(), rt.settings.catalog.units_per_day
    # Extends the lease, too: a job that makes many calls keeps it.
    if job is not None and not jobs.heartbeat(job, now):
        raise JobLeaseLost("lost before an API call: no unit is spent")
    kept = 0
    if job is not None and job.type in KINDS and KINDS[job.type].yields:
        # Units that hourly and daily refreshes still need today. Computed every few minutes.
        counted = rt.process.catalog_units
        if counted is None or not 0 <= now - counted.counted_at < UNIT_COUNT_MAX_AGE:
            hourly, _, daily = _daily_units(rt)
            counted = rt.process.catalog_units = CatalogUnits(now, hourly, daily)
        hours = ceil((api_units.day_ends(now) - now) / HOUR)
        kept = min(ceil(counted.hourly * hours / DAY_HOURS) + counted.channels, int(share * MOST_KEPT))
    if api_units.share_used(UNITS, now) + units + kept > share:
        raise SourceError(KEPT_BACK if kept else SHARE_SPENT, kind="budget")
    if not rt.has_spare(units) or not api_units.book_share(units, limit, UNITS, share, now):
        raise SourceError(SHARE_SPENT, kind="budget")
    if job is not None:
        jobs.add_units(job.id, units)


def _charge_stats(rt: Runtime, job: CatalogJob, units: int) -> None:
    now = rt.now()
    if not jobs.heartbeat(job, now):
        raise JobLeaseLost("lost before an API call: no unit is spent")
    if not api_units.book(units, rt.settings.catalog.stats_units_per_day, now, "stats"):
        raise SourceError(STATS_SPENT, kind="budget")
    jobs.add_units(job.id, units)
