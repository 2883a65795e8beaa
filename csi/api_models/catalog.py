"""Channels, videos, statistics and jobs as JSON, under the names of the specification."""

from collections.abc import Iterable, Sequence
from typing import Self

from pydantic import Field

from csi.api_models.base import ApiModel, Redacted, RedactedDetails, RedactedOrNone, RenamedKeys, Time, TimeOrNone
from csi.catalog import data_api
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.catalog.channels import Channel, ChannelFeed
from csi.store.catalog.jobs import CatalogJob, JobEvent
from csi.store.catalog.movers import ChannelMover, VideoMover
from csi.store.catalog.stats import ChannelStats, VideoStats, day_of
from csi.store.catalog.videos import CatalogVideo
from csi.store.queries import job_figures

WEEK = 7 * 86_400.0

# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────


class JobJson(ApiModel, row=CatalogJob, without=("lease_token", "lease_until", "changed_at")):
    """One job of the catalogue."""

    scheduled_at: Time
    started_at: TimeOrNone
    completed_at: TimeOrNone
    error_message: RedactedOrNone
    created_at: Time
    archived_at: TimeOrNone
    waits_for: RedactedOrNone = None
    """Why a pending job cannot run now."""


def describe_jobs(rows: Sequence[CatalogJob], now: float) -> list[JobJson]:
    """The jobs, each with what it waits for."""
    waits = job_figures.waiting_reasons(rows, now)
    return [JobJson.of(row, waits_for=waits.get(row.id)) for row in rows]


class JobEventJson(ApiModel, row=JobEvent):
    """One step of a job."""

    occurred_at: Time
    details: RedactedDetails


class JobDetail(JobJson):
    """A job and its history."""

    history: list[JobEventJson]


def describe_job(row: CatalogJob, now: float) -> JobDetail:
    """The job with its history and what it waits for."""
    waits = job_figures.waiting_reasons([row], now)
    return JobDetail.of(row, history=jobs.history(row.id), waits_for=waits.get(row.id))


class JobList(ApiModel):
    """Jobs, and how many there are in each status."""

    jobs: list[JobJson]
    counts: dict[str, int]


class JobPage(JobList):
    """A page of jobs. `next` null: there are no more."""

    next: str | None


class JobEnqueued(ApiModel):
    """A job, and whether it was open already."""

    job: JobJson
    duplicate: bool = Field(validation_alias="is_duplicate")


class JobChanged(ApiModel):
    """The status of a job after a change."""

    id: str
    status: str


# ── channels ────────────────────────────────────────────────────────────────────────────────────────────


class ChannelJson(ApiModel, row=Channel):
    """A channel of the catalogue."""

    created_at: TimeOrNone
    tracked_since: Time
    last_refreshed_at: TimeOrNone
    next_refresh_at: TimeOrNone
    missing_since: TimeOrNone
    backfilled_at: TimeOrNone


class ChannelToday(ChannelJson):
    """A channel with its gains of today."""

    daily_views: int | None
    daily_subscribers: int | None
    daily_videos: int | None


class ChannelList(RenamedKeys, renamed={"units_a_day": "units_per_day"}):
    """Every channel, and what refreshing them costs."""

    channels: list[ChannelToday]
    units_per_day: int
    share: int
    next: str | None
    """Of a page; null: there are no more."""


class ChannelFeedJson(ApiModel, row=ChannelFeed):
    """The watch of a channel's feed."""

    last_polled_at: TimeOrNone
    last_video_published_at: TimeOrNone


class ChannelStatsJson(ApiModel, row=ChannelStats, without=("captured_on",)):
    """The figures of a channel as they were captured."""

    captured_at: Time


class ChannelDetail(ChannelJson):
    """A channel with its feed, its newest jobs and its last week."""

    known_videos: int
    missing_videos: int
    feed: ChannelFeedJson | None
    jobs: list[JobJson]
    stats: list[ChannelStatsJson]


class TrendDay(ApiModel):
    """The figures of a channel on one day. A gain that is not known is null."""

    date: str = Field(validation_alias="captured_on")
    subscriber_count: int | None
    daily_subscribers: int | None
    view_count: int | None
    daily_views: int | None
    video_count: int | None
    daily_videos: int | None


class TrendCapture(TrendDay, ChannelStatsJson):
    """The same with the capture it comes from."""


class ChannelTrend(ApiModel):
    """The figures of a channel, day by day."""

    channel_id: str
    days: list[TrendCapture]


class ChannelAdded(ApiModel):
    """What tracking a channel began."""

    channel: ChannelJson
    job: str | None
    watch: Redacted
    remark: RedactedOrNone


class ChannelPaused(ApiModel):
    """The status of a channel after a pause."""

    changed: bool
    status: str


class ChannelRemoved(ApiModel):
    """What removing a channel deleted, by table."""

    id: str
    dry_run: bool
    removed: dict[str, int]


class ChannelResumed(ChannelPaused):
    """The status of a channel after it was resumed, and the job that catches up."""

    job: str | None


class ChannelPriority(ApiModel):
    """The priority of a channel's jobs."""

    changed: bool
    priority: int


def all_channels(
    rt: Runtime, status: str | None = None, *, limit: int | None = None, after: str | None = None
) -> ChannelList:  # fmt: skip
    """Every channel, or a page of them, with their gains of today, and what refreshing all of them costs."""
    rows = [row for row in channels.dashboard(day_of(rt.now())) if status in (None, row["status"])]
    start = next((at + 1 for at, row in enumerate(rows) if row["id"] == after), 0)
    end = len(rows) if limit is None else start + limit
    shown, share = rows[start:end], data_api.share_of(rt)
    following = shown[-1]["id"] if shown and end < len(rows) else None
    return ChannelList.of(channels=shown, units_per_day=share.needed, share=share.limit, next=following)


def one_channel(rt: Runtime, row: Channel) -> ChannelDetail:
    """A channel with its feed, its newest jobs and its last week."""
    total, missing = videos.count_of(row.id)
    return ChannelDetail.of(
        row,
        known_videos=total,
        missing_videos=missing,
        feed=channels.feed_of(row.id),
        jobs=describe_jobs(jobs.page(channel_id=row.id, limit=5), rt.now()),
        stats=stats.trend(row.id, rt.now() - WEEK),
    )


# ── videos ──────────────────────────────────────────────────────────────────────────────────────────────


class VideoJson(ApiModel, row=CatalogVideo):
    """A video of the catalogue."""

    published_at: Time
    first_seen_at: Time
    last_refreshed_at: TimeOrNone
    missing_since: TimeOrNone
    next_refresh_at: TimeOrNone


class VideoList(ApiModel):
    """A channel's videos."""

    channel_id: str
    videos: list[VideoJson]


class VideoPage(VideoList):
    """A page of videos. `next` null: there are no more."""

    next: str | None


class HotVideo(VideoJson):
    """A video with its newest gains."""

    hourly_views: int | None
    daily_views: int | None


class HotVideos(ApiModel):
    """The videos with the most views in the last hour."""

    videos: list[HotVideo]

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[CatalogVideo, int | None, int | None]]) -> Self:
        return cls(videos=[HotVideo.of(row, hourly_views=hour, daily_views=day) for row, hour, day in rows])


class VideoStatsJson(ApiModel, row=VideoStats):
    """The figures of a video as they were captured."""

    captured_at: Time


class VideoDetail(VideoJson):
    """A video and its last captures."""

    stats: list[VideoStatsJson]


# ── across channels ─────────────────────────────────────────────────────────────────────────────────────


class VideoMoverJson(ApiModel, row=VideoMover):
    """A video and the gains of its newest capture."""

    published_at: Time
    captured_at: Time


class ChannelMoverJson(ApiModel, row=ChannelMover):
    """A channel and the gains of its newest day."""


class Movers(ApiModel):
    """Videos and channels, those with the most views a day first."""

    videos: list[VideoMoverJson]
    channels: list[ChannelMoverJson]


class ComparedDayJson(ApiModel):
    """The figure of each channel on one day, in the order of the channels."""

    date: str
    values: list[int | None]


class ComparedChannel(ApiModel):
    """One of the channels."""

    id: str
    title: str


class ChannelComparison(ApiModel):
    """One figure of several channels, day by day."""

    measure: str
    channels: list[ComparedChannel]
    days: list[ComparedDayJson]
