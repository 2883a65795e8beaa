"""`/admin/channels`, `/admin/videos`, `/admin/jobs`: as `csi channels`, `csi videos` and `csi jobs`."""

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from csi import api_models
from csi.adapters.youtube.references import UnknownReference
from csi.catalog import channel_admin, comparison
from csi.jobs import job_admin
from csi.jobs.job_kinds import KINDS, MOST_VIDEOS, JobRefused
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, movers, stats, videos
from csi.store.catalog.channels import Channel, ChannelStatus
from csi.store.catalog.jobs import CatalogJob, JobStatus
from csi.store.queries import job_figures
from csi.web.operation_definition import Limit, OperationList, RequestModel, Whole, page_of
from csi.web.responses import HttpProblem, reply

DAY = 86_400.0
Priority = Annotated[int, Field(strict=True, ge=1, le=10)]
VideoLimit = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
NO_CHANNEL = "this channel is not in the catalogue"
ABSENT = {404: "No channel with this id is tracked"}
NO_JOB = {404: "No job with this id"}
STATUS = NO_JOB | {409: "Its status does not allow this; `detail` says why"}

OPERATIONS = OperationList()


class ChannelRequest(RequestModel):
    """Which channel to track."""

    what: str = Field(min_length=1, max_length=500, description="A channel id, URL or @handle")
    priority: Priority = Field(5, description="Of its jobs; higher is sooner")
    videos: VideoLimit | None = Field(None, description="Fetch only this many of the newest videos")
    watch: bool = Field(True, description="Also poll its feed")


class ChannelQuery(RequestModel):
    """Which channels."""

    status: ChannelStatus | None = Field(None, description="Only in this status")
    limit: Limit | None = Field(None, description="Rows per page; default: all rows")
    after: str | None = Field(None, max_length=64, description="The `next` of the previous page")


class RemovalQuery(RequestModel):
    """Whether to change anything."""

    dry_run: bool = Field(False, description="Report how many rows would be deleted, and change nothing")


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


class ComparisonQuery(RequestModel):
    """Which channels, and what of them."""

    channels: str = Field(max_length=400, description="2 to 10 ids, separated by commas")
    measure: str = Field("daily_views", max_length=40, description=f"One of {', '.join(comparison.MEASURES)}")
    days: Whole = Field(30, ge=1, le=36_500, description="Days before now")


class HotVideoQuery(RequestModel):
    """How many."""

    limit: Limit = 50


class JobQuery(RequestModel):
    """Which jobs."""

    limit: Limit = 50
    status: JobStatus | None = Field(None, description="Only in this status")
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


@OPERATIONS.add("GET", "/channels", "listChannels", "Every tracked channel with its gains of today")
def list_channels(rt: Runtime, query: ChannelQuery) -> api_models.ChannelList:
    if query.after is not None and channels.find(query.after) is None:
        raise HttpProblem(400, "after: it is not the `next` of a page")
    return api_models.all_channels(rt, query.status, limit=query.limit, after=query.after)


@OPERATIONS.add("GET", "/channels/compare", "compareChannels", "One figure of 2 to 10 channels, day by day")
def compare_channels(rt: Runtime, query: ComparisonQuery) -> api_models.ChannelComparison:
    wanted = list(dict.fromkeys(ref.strip() for ref in query.channels.split(",") if ref.strip()))
    rows = [row for row in map(channels.find, wanted) if row is not None]
    if len(rows) < len(wanted):
        raise HttpProblem(400, f"channels: {NO_CHANNEL}")
    try:
        return api_models.ChannelComparison.of(comparison.compare(rt, rows, query.measure, query.days))
    except channel_admin.CatalogRefused as error:
        raise HttpProblem(400, str(error)) from error


@OPERATIONS.add(
    "POST", "/channels", "addChannel",
    "Track a channel: fetch its videos, then refresh its statistics. The look-up costs an API unit",
    answer=api_models.ChannelAdded, refusals={409: "It is tracked already", 502: "The request to YouTube failed"},
)  # fmt: skip
def add_channel(rt: Runtime, body: ChannelRequest) -> Response:
    """201; 409 where it is tracked already, 400 with the reason where it cannot be."""
    try:
        done = channel_admin.register(rt, body.what, priority=body.priority, watch=body.watch, videos=body.videos)
    except (channel_admin.CatalogRefused, UnknownReference) as error:
        raise HttpProblem(400, f"what: {error}") from error
    if done.result == "known":
        raise HttpProblem(409, f"channel {done.channel.id} is {done.remark}")
    return reply(api_models.ChannelAdded.of(done, job=done.job.id if done.job else None), 201)


@OPERATIONS.add(
    "GET", "/channels/{id}", "showChannel", "A channel with its feed, its newest jobs and its last week",
    refusals=ABSENT,
)  # fmt: skip
def show_channel(rt: Runtime, id: str) -> api_models.ChannelDetail:
    return api_models.one_channel(rt, _channel(id))


@OPERATIONS.add(
    "GET", "/channels/{id}/trend", "showTrend", "Its figures day by day; a gain that is not known is null",
    refusals=ABSENT,
)  # fmt: skip
def trend(rt: Runtime, id: str, query: TrendQuery) -> api_models.ChannelTrend:
    row = _channel(id)
    return api_models.ChannelTrend.of(channel_id=row.id, days=stats.trend(row.id, rt.now() - query.days * DAY))


@OPERATIONS.add(
    "POST", "/channels/{id}/pause", "pauseChannel", "Pause the channel and its feed; running jobs finish",
    refusals=ABSENT,
)  # fmt: skip
def pause(rt: Runtime, id: str) -> api_models.ChannelPaused:
    return api_models.ChannelPaused.of(changed=channel_admin.pause(rt, _channel(id)), status=_channel(id).status)


@OPERATIONS.add(
    "POST", "/channels/{id}/resume", "resumeChannel", "Resume the channel, and fetch what it published meanwhile",
    refusals=ABSENT,
)  # fmt: skip
def resume(rt: Runtime, id: str) -> api_models.ChannelResumed:
    job = channel_admin.resume(rt, _channel(id))
    return api_models.ChannelResumed.of(
        changed=job is not None, status=_channel(id).status, job=job.id if job else None
    )


@OPERATIONS.add(
    "DELETE", "/channels/{id}", "removeChannel", "Delete the channel with its videos, statistics and jobs",
    refusals=ABSENT | {409: "A job of it runs, or catalog.track_watched would add it again"},
)  # fmt: skip
def remove(rt: Runtime, id: str, query: RemovalQuery) -> api_models.ChannelRemoved:
    row = _channel(id)
    removed = channel_admin.remove(rt, row, dry_run=query.dry_run)
    return api_models.ChannelRemoved.of(id=row.id, dry_run=query.dry_run, removed=removed)


@OPERATIONS.add("POST", "/channels/{id}/priority", "rankChannel", "Set the priority of its jobs", refusals=ABSENT)
def set_priority(rt: Runtime, id: str, body: PriorityRequest) -> api_models.ChannelPriority:
    row = _channel(id)
    channel_admin.set_priority(row, body.priority)
    return api_models.ChannelPriority(changed=row.priority != body.priority, priority=body.priority)


@OPERATIONS.add("POST", "/channels/{id}/backfill", "backfillChannel", "Fetch its videos again", refusals=ABSENT)
def backfill(rt: Runtime, id: str, body: BackfillRequest) -> api_models.JobEnqueued:
    return api_models.JobEnqueued.of(
        channel_admin.backfill(rt, _channel(id), priority=body.priority, videos=body.videos)
    )


def _channel(id: str) -> Channel:
    row = channels.find(id)
    if row is None:
        raise HttpProblem(404, NO_CHANNEL)
    return row


# ── videos ──────────────────────────────────────────────────────────────────────────────────────────────


@OPERATIONS.add("GET", "/videos", "listVideos", "A channel's videos, newest first", refusals=ABSENT)
def list_videos(rt: Runtime, query: VideoQuery) -> api_models.VideoPage:
    if channels.find(query.channel) is None:
        raise HttpProblem(404, NO_CHANNEL)
    last = None if query.before is None else videos.find(query.before)
    if query.before is not None and (last is None or last.channel_id != query.channel):
        raise HttpProblem(400, "before: it is not the `next` of a page of this channel")
    since = rt.now() - query.days * DAY if query.days else 0.0
    rows = videos.of_channel(query.channel, since=since, limit=query.limit + 1, before=last)
    shown, following = page_of(rows, query.limit)
    return api_models.VideoPage.of(channel_id=query.channel, videos=shown, next=following)


@OPERATIONS.add("GET", "/videos/hot", "listHotVideos", "Videos up to 7 days old, most views in the last hour first")
def hot_videos(rt: Runtime, query: HotVideoQuery) -> api_models.HotVideos:
    return api_models.HotVideos.of_rows(videos.hottest(query.limit))


@OPERATIONS.add("GET", "/videos/movers", "listMovers", "Videos and channels that gained most views in their last day")
def list_movers(rt: Runtime, query: HotVideoQuery) -> api_models.Movers:
    since = rt.now() - comparison.MOVERS_DAYS * DAY
    return api_models.Movers.of(videos=movers.videos(since, query.limit), channels=movers.channels(since, query.limit))


@OPERATIONS.add(
    "GET", "/videos/{id}", "showVideo", "A video and its last 24 captures", refusals={404: "No video with this id"}
)
def show_video(rt: Runtime, id: str) -> api_models.VideoDetail:
    row = videos.find(id)
    if row is None:
        raise HttpProblem(404, "this video is not in the catalogue")
    return api_models.VideoDetail.of(row, stats=stats.recent(row.id, 24))


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────


@OPERATIONS.add("GET", "/jobs", "listJobs", "The catalogue's jobs, newest first")
def list_jobs(rt: Runtime, query: JobQuery) -> api_models.JobPage:
    if query.type is not None and query.type not in KINDS:
        raise HttpProblem(400, f"type: must be one of {', '.join(KINDS)}")
    rows = jobs.page(
        status=query.status, type=query.type, channel_id=query.channel, limit=query.limit + 1, before=query.before
    )
    shown, following = page_of(rows, query.limit)
    return api_models.JobPage.of(
        jobs=api_models.describe_jobs(shown, rt.now()), counts=job_figures.counts(), next=following
    )


@OPERATIONS.add("GET", "/jobs/{id}", "showJob", "A job and its history", refusals=NO_JOB)
def show_job(rt: Runtime, id: str) -> api_models.JobDetail:
    return api_models.describe_job(_job(id), rt.now())


@OPERATIONS.add(
    "POST", "/jobs", "addJob", "Enqueue a job; an open job with the same key is returned instead",
    answer=api_models.JobEnqueued,
)  # fmt: skip
def add_job(rt: Runtime, body: JobRequest) -> Response:
    if body.channel is not None and channels.find(body.channel) is None:
        raise HttpProblem(400, "channel: it is not in the catalogue")
    try:
        found = job_admin.enqueue(
            rt, body.type, channel_id=body.channel, video_ids=body.videos, priority=body.priority,
            delay=body.delay_seconds,
        )  # fmt: skip
    except JobRefused as error:
        raise HttpProblem(400, str(error)) from error
    return reply(api_models.JobEnqueued.of(found), 200 if found.is_duplicate else 201)


@OPERATIONS.add(
    "POST", "/jobs/{id}/retry", "retryJob", "Run a failed, dead or delayed job now, from where it stopped",
    refusals=STATUS,
)  # fmt: skip
def retry(rt: Runtime, id: str) -> api_models.JobChanged:
    job_admin.retry(rt, _job(id))
    return api_models.JobChanged(id=id, status="pending")


@OPERATIONS.add(
    "POST", "/jobs/{id}/cancel", "cancelJob", "Give up an open job; a running one stops at its next step",
    refusals=STATUS,
)  # fmt: skip
def cancel(rt: Runtime, id: str) -> api_models.JobChanged:
    job_admin.cancel(rt, _job(id))
    return api_models.JobChanged(id=id, status="dead")


def _job(id: str) -> CatalogJob:
    row = jobs.find(id)
    if row is None:
        raise HttpProblem(404, "there is no job with this id")
    return row
