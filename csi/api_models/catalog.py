"""Channels, videos, statistics and jobs as JSON, under the names of the specification."""

from typing import Any, Literal

from pydantic import Field

from csi.api_models.base import ApiModel, Redacted, RedactedDetails, RedactedOrNone, RenamedKeys, Time, TimeOrNone

# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────


class JobJson(ApiModel):
    """One job of the catalogue."""

    id: str
    type: str
    channel_id: str | None
    video_ids: list[str]
    priority: int
    dedup_key: str
    status: Literal["pending", "running", "failed", "completed", "dead"]
    attempts: int
    max_attempts: int
    scheduled_at: Time
    started_at: TimeOrNone
    completed_at: TimeOrNone
    error_message: RedactedOrNone
    payload: dict[str, Any]
    progress: dict[str, Any]
    units: int
    created_at: Time
    archived_at: TimeOrNone


class JobEventJson(ApiModel):
    """One step of a job."""

    id: str
    job_id: str
    event_type: str
    occurred_at: Time
    details: RedactedDetails
    duration_ms: int | None


class JobDetail(JobJson):
    """A job and its history."""

    history: list[JobEventJson]


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


class ChannelJson(ApiModel):
    """A channel of the catalogue."""

    id: str
    title: str
    description: str | None
    custom_url: str | None
    subscriber_count: int | None
    video_count: int | None
    view_count: int | None
    thumbnail_url: str | None
    uploads_playlist_id: str | None
    country: str | None
    created_at: TimeOrNone
    tracked_since: Time
    last_refreshed_at: TimeOrNone
    status: Literal["active", "paused", "deleted", "error"]
    priority: int
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


class ChannelFeedJson(ApiModel):
    """The watch of a channel's feed."""

    channel_id: str
    feed_url: str | None
    last_etag: str | None
    last_modified: str | None
    last_polled_at: TimeOrNone
    last_video_published_at: TimeOrNone
    poll_interval_minutes: float
    consecutive_errors: int
    status: str
    watch_id: int


class ChannelStatsJson(ApiModel):
    """The figures of a channel as they were captured."""

    id: str
    channel_id: str
    captured_at: Time
    subscriber_count: int | None
    video_count: int | None
    view_count: int | None
    daily_views: int | None
    daily_subscribers: int | None
    daily_videos: int | None


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


class ChannelResumed(ChannelPaused):
    """The status of a channel after it was resumed, and the job that catches up."""

    job: str | None


class ChannelPriority(ApiModel):
    """The priority of a channel's jobs."""

    changed: bool
    priority: int


# ── videos ──────────────────────────────────────────────────────────────────────────────────────────────


class VideoJson(ApiModel):
    """A video of the catalogue."""

    id: str
    channel_id: str
    title: str
    description: str | None
    published_at: Time
    duration: int | None
    view_count: int | None
    like_count: int | None
    comment_count: int | None
    thumbnail_url: str | None
    category_id: str | None
    tags: list[str]
    language: str | None
    caption_available: bool | None
    definition: str | None
    privacy_status: str | None
    upload_status: str | None
    first_seen_at: Time
    last_refreshed_at: TimeOrNone
    missing_since: TimeOrNone
    refresh_tier: Literal["hot", "medium", "tail"]
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


class VideoStatsJson(ApiModel):
    """The figures of a video as they were captured."""

    id: str
    video_id: str
    captured_at: Time
    view_count: int | None
    like_count: int | None
    comment_count: int | None
    hourly_views: int | None
    daily_views: int | None


class VideoDetail(VideoJson):
    """A video and its last captures."""

    stats: list[VideoStatsJson]
