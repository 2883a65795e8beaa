"""`/admin/channels`, `/admin/videos`, `/admin/jobs`: as `csi channels`, `csi videos` and `csi jobs`."""

from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from csi.adapters.youtube.references import UnknownReference
from csi.api_models import (
    ChannelAdded,
    ChannelDetail,
    ChannelList,
    ChannelPaused,
    ChannelPriority,
    ChannelResumed,
    ChannelTrend,
    HotVideo,
    HotVideos,
    JobChanged,
    JobDetail,
    JobEnqueued,
    JobPage,
    VideoDetail,
    VideoPage,
    all_channels,
    one_channel,
)  # fmt: skip
from csi.catalog import channel_admin
from csi.jobs import job_admin
from csi.jobs.job_kinds import KINDS, MOST_VIDEOS, JobRefused
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.catalog.channels import Channel
from csi.store.catalog.jobs import CatalogJob
from csi.web.operation_definition import ApiRequest, Limit, Operation, RequestModel, Whole, page_of
from csi.web.responses import HttpProblem, reply

DAY = 86_400.0
Priority = Annotated[int, Field(strict=True, ge=1, le=10)]
VideoLimit = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
NO_CHANNEL = "this channel is not in the catalogue"


class ChannelRequest(RequestModel):
    """Which channel to track."""

    what: str = Field(min_length=1, max_length=500, description="A channel id, URL or @handle")
    priority: Priority = Field(5, description="Of its jobs; higher is sooner")
    videos: VideoLimit | None = Field(None, description="Fetch only this many of the newest videos")
    watch: bool = Field(True, description="Also poll its feed")


class ChannelQuery(RequestModel):
    """Which channels."""

    status: Literal["active", "paused", "deleted", "error"] | None = Field(None, description="Only in this status")


class PriorityRequest(RequestModel):
    """The new priority."""

    priority: Priority = Field(description="Of its jobs from now on; higher is sooner")


class BackfillRequest(RequestModel):
    """How much to fetch."""

    priority: Priority | None = Field(None, description="Of this job")
    videos: VideoLimit | None = Field(None, description="Only this many of the newest videos")


class TrendQuery(RequestModel):
    """How far back."""

    days: Whole = Field(90, ge=1, le=36_500, description="Days before now")


class VideoQuery(RequestModel):
    """Which videos."""

    channel: str = Field(max_length=64, description="Of the channel with this id")
    days: Whole | None = Field(None, ge=1, le=36_500, description="Published in the last days")
    limit: Limit = 50
    before: str | None = Field(None, max_length=64, description="The `next` of the previous page")


class HotVideoQuery(RequestModel):
    """How many."""

    limit: Limit = 50


class JobQuery(RequestModel):
    """Which jobs."""

    limit: Limit = 50
    status: Literal["pending", "running", "failed", "completed", "dead"] | None = Field(
        None, description="Only in this status"
    )
    type: str | None = Field(None, max_length=40, description="Only of this type")
    channel: str | None = Field(None, max_length=64, description="Only of the channel with this id")
    before: str | None = Field(None, max_length=36, description="The `next` of the previous page")


class JobRequest(RequestModel):
    """The job to enqueue."""

    type: str = Field(max_length=40, description=f"One of {', '.join(KINDS)}")
    channel: str | None = Field(None, max_length=64, description="The channel's id, where the type needs one")
    videos: tuple[str, ...] = Field((), max_length=MOST_VIDEOS, description="Only these videos")
    priority: Priority | None = Field(None, description="Higher is sooner")
    delay_seconds: float = Field(
        0, ge=0, le=job_admin.LONGEST_DELAY, description="Start at the earliest after this time"
    )


# ── channels ────────────────────────────────────────────────────────────────────────────────────────────


def add_channel(rt: Runtime, call: ApiRequest) -> Response:
    """201; 409 where it is tracked already, 400 with the reason where it cannot be."""
    asked: ChannelRequest = call.body
    try:
        done = channel_admin.register(rt, asked.what, priority=asked.priority, watch=asked.watch, videos=asked.videos)
    except (channel_admin.CatalogRefused, UnknownReference) as error:
        raise HttpProblem(400, f"what: {error}") from error
    if done.result == "known":
        raise HttpProblem(409, f"channel {done.channel.id} is {done.remark}")
    return reply(ChannelAdded.of(done, job=done.job.id if done.job else None), 201)


def list_channels(rt: Runtime, call: ApiRequest) -> ChannelList:
    return all_channels(rt, call.query.status)


def show_channel(rt: Runtime, call: ApiRequest) -> ChannelDetail:
    return one_channel(rt, _channel(call))


def trend(rt: Runtime, call: ApiRequest) -> ChannelTrend:
    row = _channel(call)
    return ChannelTrend.of(channel_id=row.id, days=stats.trend(row.id, rt.now() - call.query.days * DAY))


def pause(rt: Runtime, call: ApiRequest) -> ChannelPaused:
    row = _channel(call)
    return ChannelPaused.of(changed=channel_admin.pause(rt, row), status=_channel(call).status)


def resume(rt: Runtime, call: ApiRequest) -> ChannelResumed:
    row = _channel(call)
    job = channel_admin.resume(rt, row)
    return ChannelResumed.of(changed=job is not None, status=_channel(call).status, job=job.id if job else None)


def set_priority(rt: Runtime, call: ApiRequest) -> ChannelPriority:
    row, priority = _channel(call), call.body.priority
    channel_admin.set_priority(row, priority)
    return ChannelPriority(changed=row.priority != priority, priority=priority)


def backfill(rt: Runtime, call: ApiRequest) -> JobEnqueued:
    found = channel_admin.backfill(rt, _channel(call), priority=call.body.priority, videos=call.body.videos)
    return JobEnqueued.of(found)


def _channel(call: ApiRequest) -> Channel:
    row = channels.find(call.path["id"])
    if row is None:
        raise HttpProblem(404, NO_CHANNEL)
    return row


# ── videos ──────────────────────────────────────────────────────────────────────────────────────────────


def list_videos(rt: Runtime, call: ApiRequest) -> VideoPage:
    query: VideoQuery = call.query
    if channels.find(query.channel) is None:
        raise HttpProblem(404, NO_CHANNEL)
    last = None if query.before is None else videos.find(query.before)
    if query.before is not None and (last is None or last.channel_id != query.channel):
        raise HttpProblem(400, "before: it is not the `next` of a page of this channel")
    since = rt.now() - query.days * DAY if query.days else 0.0
    rows = videos.of_channel(query.channel, since=since, limit=query.limit + 1, before=last)
    shown, following = page_of(rows, query.limit)
    return VideoPage.of(channel_id=query.channel, videos=shown, next=following)


def hot_videos(rt: Runtime, call: ApiRequest) -> HotVideos:
    rows = videos.hottest(call.query.limit)
    return HotVideos(videos=[HotVideo.of(row, hourly_views=hour, daily_views=day) for row, hour, day in rows])


def show_video(rt: Runtime, call: ApiRequest) -> VideoDetail:
    row = videos.find(call.path["id"])
    if row is None:
        raise HttpProblem(404, "this video is not in the catalogue")
    return VideoDetail.of(row, stats=stats.recent(row.id, 24))


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────


def list_jobs(rt: Runtime, call: ApiRequest) -> JobPage:
    query: JobQuery = call.query
    if query.type is not None and query.type not in KINDS:
        raise HttpProblem(400, f"type: must be one of {', '.join(KINDS)}")
    rows = jobs.page(
        status=query.status, type=query.type, channel_id=query.channel, limit=query.limit + 1, before=query.before
    )
    shown, following = page_of(rows, query.limit)
    return JobPage.of(jobs=shown, counts=jobs.counts(), next=following)


def show_job(rt: Runtime, call: ApiRequest) -> JobDetail:
    row = _job(call)
    return JobDetail.of(row, history=jobs.history(row.id))


def add_job(rt: Runtime, call: ApiRequest) -> Response:
    asked: JobRequest = call.body
    if asked.channel is not None and channels.find(asked.channel) is None:
        raise HttpProblem(400, "channel: it is not in the catalogue")
    try:
        found = job_admin.enqueue(
            rt,
            asked.type,
            channel_id=asked.channel,
            video_ids=asked.videos,
            priority=asked.priority,
            delay=asked.delay_seconds,
        )
    except JobRefused as error:
        raise HttpProblem(400, str(error)) from error
    return reply(JobEnqueued.of(found), 200 if found.is_duplicate else 201)


def retry(rt: Runtime, call: ApiRequest) -> JobChanged:
    row = _job(call)
    job_admin.retry(rt, row)
    return JobChanged(id=row.id, status="pending")


def cancel(rt: Runtime, call: ApiRequest) -> JobChanged:
    row = _job(call)
    job_admin.cancel(rt, row)
    return JobChanged(id=row.id, status="dead")


def _job(call: ApiRequest) -> CatalogJob:
    row = jobs.find(call.path["id"])
    if row is None:
        raise HttpProblem(404, "there is no job with this id")
    return row


_ABSENT = {404: "No channel with this id is tracked"}
_NO_JOB = {404: "No job with this id"}
_STATUS = _NO_JOB | {409: "Its status does not allow this; `detail` says why"}
_CHANNEL = "/channels/{id}"

OPERATIONS = [
    Operation(
        "GET", "/channels", "listChannels", "Every tracked channel with its gains of today", list_channels,
        query=ChannelQuery,
    ),
    Operation(
        "POST", "/channels", "addChannel",
        "Track a channel: fetch its videos, then refresh its statistics. The look-up costs an API unit", add_channel,
        answer=ChannelAdded, body=ChannelRequest,
        refusals={409: "It is tracked already", 502: "The request to YouTube failed"},
    ),
    Operation(
        "GET", _CHANNEL, "showChannel", "A channel with its feed, its newest jobs and its last week", show_channel,
        refusals=_ABSENT,
    ),
    Operation(
        "GET", f"{_CHANNEL}/trend", "showTrend", "Its figures day by day; a gain that is not known is null", trend,
        query=TrendQuery, refusals=_ABSENT,
    ),
    Operation(
        "POST", f"{_CHANNEL}/pause", "pauseChannel", "Pause the channel and its feed; running jobs finish", pause,
        refusals=_ABSENT,
    ),
    Operation(
        "POST", f"{_CHANNEL}/resume", "resumeChannel", "Resume the channel, and fetch what it published meanwhile",
        resume, refusals=_ABSENT,
    ),
    Operation(
        "POST", f"{_CHANNEL}/priority", "rankChannel", "Set the priority of its jobs", set_priority,
        body=PriorityRequest, refusals=_ABSENT,
    ),
    Operation(
        "POST", f"{_CHANNEL}/backfill", "backfillChannel", "Fetch its videos again", backfill, body=BackfillRequest,
        refusals=_ABSENT,
    ),
    Operation(
        "GET", "/videos", "listVideos", "A channel's videos, newest first", list_videos, query=VideoQuery,
        refusals=_ABSENT,
    ),
    Operation(
        "GET", "/videos/hot", "listHotVideos", "Videos up to 7 days old, most views in the last hour first", hot_videos,
        query=HotVideoQuery,
    ),
    Operation(
        "GET", "/videos/{id}", "showVideo", "A video and its last 24 captures", show_video,
        refusals={404: "No video with this id"},
    ),
    Operation("GET", "/jobs", "listJobs", "The catalogue's jobs, newest first", list_jobs, query=JobQuery),
    Operation(
        "POST", "/jobs", "addJob", "Enqueue a job; an open job with the same key is returned instead", add_job,
        answer=JobEnqueued, body=JobRequest,
    ),
    Operation("GET", "/jobs/{id}", "showJob", "A job and its history", show_job, refusals=_NO_JOB),
    Operation(
        "POST", "/jobs/{id}/retry", "retryJob", "Run a failed, dead or delayed job now, from where it stopped", retry,
        refusals=_STATUS,
    ),
    Operation(
        "POST", "/jobs/{id}/cancel", "cancelJob", "Give up an open job; a running one stops at its next step", cancel,
        refusals=_STATUS,
    ),
]  # fmt: skip
