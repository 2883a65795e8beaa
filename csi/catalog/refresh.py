"""REFRESH_…: statistics of what is due, 50 to a unit. What was refreshed is not due any more: a crash costs a call."""

from functools import partial

from csi.catalog import capture, data_api
from csi.catalog.refresh_schedule import DAY, next_channel_refresh
from csi.jobs.job_kinds import new_job
from csi.jobs.run_job import Handler, JobDone, StepDone
from csi.logs import log
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.jobs import CatalogJob
from csi.store.catalog.videos import DueVideo, Tier, VideoFacts

BATCH = 50


def refresh_tier(tier: Tier) -> Handler:
    """The handler for the videos of one tier, or for those that the job names."""
    return partial(_refresh_videos, tier)


def _refresh_videos(tier: Tier, rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    done = {"videos": 0, "missing": 0, "asked": 0} | job.progress
    wanted = _wanted(tier, rt, job, done["asked"])
    if not wanted:
        return JobDone({"videos": done["videos"], "missing": done["missing"]})
    found = _ours(data_api.read_videos(data_api.open_api(rt, job), [video.id for video in wanted]))
    gone = [video for video in wanted if video.id not in found]
    progress = {
        "videos": done["videos"] + len(found),
        "missing": done["missing"] + len(gone),
        "asked": done["asked"] + BATCH,
    }
    return StepDone(progress, partial(_save_videos, rt, list(found.values()), gone))


def _wanted(tier: Tier, rt: Runtime, job: CatalogJob, asked: int) -> list[DueVideo]:
    if job.video_ids:
        return videos.by_ids(job.video_ids[asked : asked + BATCH])
    return videos.due(tier, rt.now(), BATCH)


def _ours(found: dict[str, VideoFacts]) -> dict[str, VideoFacts]:
    """A video that is with a channel which nobody tracks is gone: otherwise it would be due for ever."""
    tracked = channels.known(list({facts.channel_id for facts in found.values()}))
    return {ref: facts for ref, facts in found.items() if facts.channel_id in tracked}


def _save_videos(rt: Runtime, found: list[VideoFacts], gone: list[DueVideo]) -> None:
    now = rt.now()
    capture.record_videos(found, now)
    newly = capture.record_missing(gone, now)
    if newly:
        log.info("videos are missing at YouTube", videos=newly)


def refresh_channels(rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    done = {"channels": 0, "missing": 0} | job.progress
    ids = channels.due(rt.now(), BATCH)
    if not ids:
        return JobDone(done)
    found = data_api.read_channels(data_api.open_api(rt, job), ids)
    gone = [ref for ref in ids if ref not in found]
    progress = {"channels": done["channels"] + len(found), "missing": done["missing"] + len(gone)}
    return StepDone(progress, partial(_save_channels, rt, list(found.values()), gone))


def _save_channels(rt: Runtime, found: list[ChannelFacts], gone: list[str]) -> None:
    now = rt.now()
    for facts in found:
        _catch_up(rt, facts, now)
        capture.record_channel(facts, now)
    for ref in gone:
        if channels.note_missing(ref, now - 0.9 * DAY, next_channel_refresh(now), now):
            log.warning("channel is gone from YouTube", channel=ref)


def _catch_up(rt: Runtime, facts: ChannelFacts, now: float) -> None:
    """More videos than the feed told of (a filter, an outage, no watch): the newest uploads are looked through."""
    before = channels.find(facts.id)
    if before is None or before.backfilled_at is None or before.video_count is None or facts.video_count is None:
        return
    seen = videos.published_since(facts.id, before.last_refreshed_at or now)
    if facts.video_count - before.video_count > seen:
        jobs.enqueue(
            new_job(
                "BACKFILL_CHANNEL",
                channel_id=facts.id,
                priority=before.priority,
                payload={"until_known": True},
                max_attempts=rt.settings.catalog.max_attempts,
            ),
            now,
        )
