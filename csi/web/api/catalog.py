"""`/admin/channels`, `/admin/videos`, `/admin/jobs`: what `csi channels`, `csi videos` and `csi jobs` can do."""

from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from csi.adapters.youtube.references import UnknownReference
from csi.catalog import channel_admin, listing
from csi.catalog.json_shapes import shape as told
from csi.jobs import job_admin
from csi.jobs.job_kinds import KINDS, MOST_VIDEOS, JobRefused
from csi.logs import redact
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, stats, videos
from csi.store.catalog.channels import Channel
from csi.store.catalog.jobs import CatalogJob
from csi.store.catalog.videos import CatalogVideo
from csi.web.api.operation import MAX_LIMIT, Call, Given, Operation, Refusal, Whole
from csi.web.api.schema import STAMP, listed, maybe, named, shape, word
from csi.web.json_views import hidden
from csi.web.responses import reply

DAY = 86_400.0
STATUSES = ("active", "paused", "deleted", "error")
Priority = Annotated[int, Field(strict=True, ge=1, le=10)]
Cap = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]


class NewChannel(Given):
    """Which channel to track."""

    what: str = Field(min_length=1, max_length=500, description="A channel id, URL or @handle")
    priority: Priority = Field(5, description="Of its jobs; higher is sooner")
    videos: Cap | None = Field(None, description="Fetch only the newest so many")
    watch: bool = Field(True, description="Read its feed from now on")


class ChannelListing(Given):
    """Which channels."""

    status: Literal["active", "paused", "deleted", "error"] | None = Field(None, description="Only these")


class Rank(Given):
    """How important."""

    priority: Priority = Field(description="Of its jobs from now on; higher is sooner")


class Backfill(Given):
    """How much to fetch."""

    priority: Priority | None = Field(None, description="Of this job")
    videos: Cap | None = Field(None, description="Only the newest so many")


class Span(Given):
    """How far back."""

    days: Whole = Field(90, ge=1, le=36_500, description="Days before now")


class VideoListing(Given):
    """Which videos."""

    channel: str = Field(max_length=64, description="Of this channel (its id)")
    days: Whole | None = Field(None, ge=1, le=36_500, description="Published in the last so many days")
    limit: Whole = Field(50, ge=1, le=MAX_LIMIT, description="Rows on a page")
    before: str | None = Field(None, max_length=64, description="The `next` of the page before")


class Limit(Given):
    """How many."""

    limit: Whole = Field(50, ge=1, le=MAX_LIMIT, description="Rows on a page")


class JobListing(Limit):
    """Which jobs."""

    status: Literal["pending", "running", "failed", "completed", "dead"] | None = Field(None, description="Only these")
    type: str | None = Field(None, max_length=40, description="Only of this type")
    channel: str | None = Field(None, max_length=64, description="Only of this channel (its id)")
    before: str | None = Field(None, max_length=36, description="The `next` of the page before")


class NewJob(Given):
    """What to do."""

    type: str = Field(max_length=40, description=f"One of {', '.join(KINDS)}")
    channel: str | None = Field(None, max_length=64, description="The channel's id, where the type needs one")
    videos: tuple[str, ...] = Field((), max_length=MOST_VIDEOS, description="Only these videos")
    priority: Priority | None = Field(None, description="Higher is sooner")
    delay_seconds: float = Field(0, ge=0, le=job_admin.LONGEST_DELAY, description="Not before so long from now")


# ── channels ────────────────────────────────────────────────────────────────────────────────────────────


def add_channel(rt: Runtime, call: Call) -> Response:
    """201; 409 where it is tracked already, 400 with the reason where it cannot be."""
    wanted: NewChannel = call.body
    try:
        done = channel_admin.register(
            rt, wanted.what, priority=wanted.priority, watch=wanted.watch, videos=wanted.videos
        )  # fmt: skip
    except (channel_admin.CatalogRefused, UnknownReference) as error:
        raise Refusal(400, f"what: {error}") from error
    if done.result == "known":
        raise Refusal(409, f"channel {done.channel.id} is {done.remark}")
    job = done.job.id if done.job else None
    said = {"watch": redact(done.watch), "remark": hidden(done.remark)}
    return reply({"channel": told(done.channel), "job": job} | said, 201)


def list_channels(rt: Runtime, call: Call) -> dict[str, Any]:
    return listing.all_channels(rt, call.query.status)


def show_channel(rt: Runtime, call: Call) -> dict[str, Any]:
    return listing.one_channel(rt, find_channel(call))


def trend(rt: Runtime, call: Call) -> dict[str, Any]:
    row = find_channel(call)
    days = stats.trend(row.id, rt.now() - call.query.days * DAY)
    return {"channel_id": row.id, "days": [told(day) | listing.trend_day(day) for day in days]}


def pause(rt: Runtime, call: Call) -> dict[str, Any]:
    row = find_channel(call)
    return {"changed": channel_admin.pause(rt, row), "status": _again(row).status}


def resume(rt: Runtime, call: Call) -> dict[str, Any]:
    row = find_channel(call)
    job = channel_admin.resume(rt, row)
    return {"changed": job is not None, "status": _again(row).status, "job": job.id if job else None}


def rank(rt: Runtime, call: Call) -> dict[str, Any]:
    row = find_channel(call)
    channel_admin.set_priority(row, call.body.priority)
    return {"changed": row.priority != call.body.priority, "priority": call.body.priority}


def backfill(rt: Runtime, call: Call) -> dict[str, Any]:
    found = channel_admin.backfill(rt, find_channel(call), priority=call.body.priority, videos=call.body.videos)
    return {"job": told(found.job), "duplicate": found.is_duplicate}


def find_channel(call: Call) -> Channel:
    row = channels.find(call.path["id"])
    if row is None:
        raise Refusal(404, "this channel is not in the catalogue")
    return row


def _again(row: Channel) -> Channel:
    return channels.find(row.id) or row


# ── videos ──────────────────────────────────────────────────────────────────────────────────────────────


def list_videos(rt: Runtime, call: Call) -> dict[str, Any]:
    wanted: VideoListing = call.query
    if channels.find(wanted.channel) is None:
        raise Refusal(404, "this channel is not in the catalogue")
    since = rt.now() - wanted.days * DAY if wanted.days else 0.0
    last = _last_shown(wanted)
    rows = videos.of_channel(wanted.channel, since=since, limit=wanted.limit + 1, before=last)
    shown = rows[: wanted.limit]
    following = shown[-1].id if len(rows) > wanted.limit else None
    return {"channel_id": wanted.channel, "videos": [told(row) for row in shown], "next": following}


def _last_shown(wanted: VideoListing) -> CatalogVideo | None:
    if wanted.before is None:
        return None
    row = videos.find(wanted.before)
    if row is None or row.channel_id != wanted.channel:
        raise Refusal(400, "before: it is not the `next` of a page of this channel")
    return row


def hot_videos(rt: Runtime, call: Call) -> dict[str, Any]:
    rows = videos.hottest(call.query.limit)
    return {"videos": [told(row) | {"hourly_views": hour, "daily_views": day} for row, hour, day in rows]}


def show_video(rt: Runtime, call: Call) -> dict[str, Any]:
    row = videos.find(call.path["id"])
    if row is None:
        raise Refusal(404, "this video is not in the catalogue")
    return told(row) | {"stats": [told(one) for one in stats.recent(row.id, 24)]}


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────


def list_jobs(rt: Runtime, call: Call) -> dict[str, Any]:
    wanted: JobListing = call.query
    if wanted.type is not None and wanted.type not in KINDS:
        raise Refusal(400, f"type: one of {', '.join(KINDS)}")
    rows = jobs.page(
        status=wanted.status, type=wanted.type, channel_id=wanted.channel, limit=wanted.limit + 1, before=wanted.before
    )
    shown = rows[: wanted.limit]
    following = shown[-1].id if len(rows) > wanted.limit else None
    return {"jobs": [told(job) for job in shown], "counts": jobs.counts(), "next": following}


def show_job(rt: Runtime, call: Call) -> dict[str, Any]:
    row = find_job(call)
    return told(row) | {"history": [told(event) for event in jobs.history(row.id)]}


def add_job(rt: Runtime, call: Call) -> Response:
    wanted: NewJob = call.body
    if wanted.channel is not None and channels.find(wanted.channel) is None:
        raise Refusal(400, "channel: it is not in the catalogue")
    try:
        found = job_admin.enqueue(
            rt,
            wanted.type,
            channel_id=wanted.channel,
            video_ids=wanted.videos,
            priority=wanted.priority,
            delay=wanted.delay_seconds,
        )
    except JobRefused as error:
        raise Refusal(400, str(error)) from error
    return reply({"job": told(found.job), "duplicate": found.is_duplicate}, 200 if found.is_duplicate else 201)


def retry(rt: Runtime, call: Call) -> dict[str, Any]:
    row = find_job(call)
    job_admin.retry(rt, row)
    return {"id": row.id, "status": "pending"}


def cancel(rt: Runtime, call: Call) -> dict[str, Any]:
    row = find_job(call)
    job_admin.cancel(rt, row)
    return {"id": row.id, "status": "dead"}


def find_job(call: Call) -> CatalogJob:
    row = jobs.find(call.path["id"])
    if row is None:
        raise Refusal(404, "there is no job of that id")
    return row


# ── what it looks like ──────────────────────────────────────────────────────────────────────────────────

CHANNEL = shape(
    id=str,
    title=str,
    description=maybe(str),
    custom_url=maybe(str),
    subscriber_count=maybe(int),
    video_count=maybe(int),
    view_count=maybe(int),
    thumbnail_url=maybe(str),
    uploads_playlist_id=maybe(str),
    country=maybe(str),
    created_at=maybe(STAMP),
    tracked_since=STAMP,
    last_refreshed_at=maybe(STAMP),
    status=word(*STATUSES),
    priority=int,
    missing_since=maybe(STAMP),
    backfilled_at=maybe(STAMP),
)
VIDEO = shape(
    id=str,
    channel_id=str,
    title=str,
    description=maybe(str),
    published_at=STAMP,
    duration=maybe(int),
    view_count=maybe(int),
    like_count=maybe(int),
    comment_count=maybe(int),
    thumbnail_url=maybe(str),
    category_id=maybe(str),
    tags=listed(str),
    language=maybe(str),
    caption_available=maybe(bool),
    definition=maybe(str),
    privacy_status=maybe(str),
    upload_status=maybe(str),
    first_seen_at=STAMP,
    last_refreshed_at=maybe(STAMP),
    missing_since=maybe(STAMP),
    refresh_tier=word("hot", "medium", "tail"),
)
JOB = shape(
    id=str,
    type=str,
    channel_id=maybe(str),
    video_ids=listed(str),
    priority=int,
    dedup_key=str,
    status=word(*jobs.OPEN, *jobs.SETTLED),
    attempts=int,
    max_attempts=int,
    scheduled_at=STAMP,
    started_at=maybe(STAMP),
    completed_at=maybe(STAMP),
    error_message=maybe(str),
    payload=dict,
    progress=dict,
    units=int,
    created_at=STAMP,
)
CHANNEL_DAY = shape(
    date=str,
    captured_at=STAMP,
    subscriber_count=maybe(int),
    video_count=maybe(int),
    view_count=maybe(int),
    daily_views=maybe(int),
    daily_subscribers=maybe(int),
    daily_videos=maybe(int),
)
TODAY = shape(daily_views=maybe(int), daily_subscribers=maybe(int), daily_videos=maybe(int))
SCHEMAS = {"Channel": CHANNEL, "Video": VIDEO, "Job": JOB, "ChannelStats": CHANNEL_DAY}
_JOB_ANSWER = shape(job=named("Job"), duplicate=bool)
_NO_CHANNEL = {404: "No channel of that id is tracked"}
_NO_JOB = {404: "No job of that id", 409: "Its status does not allow that; `detail` says why"}

OPERATIONS = [
    Operation(
        "GET",
        "/channels",
        "listChannels",
        "Every channel that is tracked",
        shape(channels=listed({"allOf": [named("Channel"), TODAY]}), units_a_day=int, share=int),
        list_channels,
        query=ChannelListing,
    ),
    Operation(
        "POST",
        "/channels",
        "addChannel",
        "Track a channel: fetch what it published, then refresh its numbers. Costs an API unit to look",
        shape(channel=named("Channel"), job=maybe(str), watch=str, remark=maybe(str)),
        add_channel,
        body=NewChannel,
        refusals={409: "It is tracked already", 502: "YouTube could not be asked"},
    ),
    Operation(
        "GET",
        "/channels/{id}",
        "showChannel",
        "All that is known of a channel, its feed, its newest jobs and its last week",
        named("Channel"),
        show_channel,
        refusals=_NO_CHANNEL,
    ),
    Operation(
        "GET",
        "/channels/{id}/trend",
        "showTrend",
        "Its numbers day by day; a gain that is not known is null",
        shape(channel_id=str, days=listed(named("ChannelStats"))),
        trend,
        query=Span,
        refusals=_NO_CHANNEL,
    ),
    Operation(
        "POST",
        "/channels/{id}/pause",
        "pauseChannel",
        "Let it and its feed rest; jobs in flight finish",
        shape(changed=bool, status=str),
        pause,
        refusals=_NO_CHANNEL,
    ),
    Operation(
        "POST",
        "/channels/{id}/resume",
        "resumeChannel",
        "Go on with it, and catch up with what it published meanwhile",
        shape(changed=bool, status=str, job=maybe(str)),
        resume,
        refusals=_NO_CHANNEL,
    ),
    Operation(
        "POST",
        "/channels/{id}/priority",
        "rankChannel",
        "How urgent its jobs are from now on",
        shape(changed=bool, priority=int),
        rank,
        body=Rank,
        refusals=_NO_CHANNEL,
    ),
    Operation(
        "POST",
        "/channels/{id}/backfill",
        "backfillChannel",
        "Fetch once more what it published",
        _JOB_ANSWER,
        backfill,
        body=Backfill,
        refusals=_NO_CHANNEL,
    ),
    Operation(
        "GET",
        "/videos",
        "listVideos",
        "A channel's videos, the newest first",
        shape(channel_id=str, videos=listed(named("Video")), next=maybe(str)),
        list_videos,
        query=VideoListing,
        refusals=_NO_CHANNEL,
    ),
    Operation(
        "GET",
        "/videos/hot",
        "listHotVideos",
        "Videos up to 7 days old, the most viewed in the last hour first",
        shape(videos=listed(named("Video"))),
        hot_videos,
        query=Limit,
    ),
    Operation(
        "GET",
        "/videos/{id}",
        "showVideo",
        "All that is known of a video, and its last 24 captures",
        named("Video"),
        show_video,
        refusals={404: "No video of that id is known"},
    ),
    Operation(
        "GET",
        "/jobs",
        "listJobs",
        "The catalogue's jobs, the newest first",
        shape(jobs=listed(named("Job")), counts=dict, next=maybe(str)),
        list_jobs,
        query=JobListing,
    ),
    Operation(
        "POST",
        "/jobs",
        "addJob",
        "Put a job into the ledger; one that is open already is not doubled",
        _JOB_ANSWER,
        add_job,
        body=NewJob,
    ),
    Operation(
        "GET",
        "/jobs/{id}",
        "showJob",
        "A job and its history",
        named("Job"),
        show_job,
        refusals={404: "No job of that id"},
    ),
    Operation(
        "POST",
        "/jobs/{id}/retry",
        "retryJob",
        "A job that failed, is dead or waits is due now, and goes on where it was",
        shape(id=str, status=str),
        retry,
        refusals=_NO_JOB,
    ),
    Operation(
        "POST",
        "/jobs/{id}/cancel",
        "cancelJob",
        "Give an open job up; a worker that is at it stops at its next step",
        shape(id=str, status=str),
        cancel,
        refusals=_NO_JOB,
    ),
]
