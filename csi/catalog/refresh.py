"""REFRESH_…: update the statistics of due channels and videos, 50 per API unit.

A refreshed row is no longer due, so a crash costs at most one call.
"""

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
    if job.video_ids:
        wanted = videos.by_ids(job.video_ids[done["asked"] : done["asked"] + BATCH])
    else:
        wanted = videos.due(tier, rt.now(), BATCH)
    if not wanted:
        return JobDone({"videos": done["videos"], "missing": done["missing"]})
    shown = data_api.read_videos(data_api.open_api(rt, job), [video.id for video in wanted])
    # A video that moved to an untracked channel counts as missing: it could not be stored, and would stay due.
    tracked = channels.known(list({facts.channel_id for facts in shown.values()}))
    found = {ref: facts for ref, facts in shown.items() if facts.channel_id in tracked}
    gone = [video for video in wanted if video.id not in found]
    progress = {
        "videos": done["videos"] + len(found),
        "missing": done["missing"] + len(gone),
        "asked": done["asked"] + BATCH,
    }
    return StepDone(progress, partial(_save_videos, rt, list(found.values()), gone))


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
    """Enqueue a backfill of the newest uploads when the channel gained more videos than the feed listed.

    A filter, an outage or a missing watch can be the reason.
    """
    before = channels.find(facts.id)
    if before is None or before.backfilled_at is None or before.video_count is None or facts.video_count is None:
        return
    seen = videos.published_since(facts.id, before.last_refreshed_at or now)
    if facts.video_count - before.video_count > seen:
        backfill = new_job(
            "BACKFILL_CHANNEL",
            channel_id=facts.id,
            priority=before.priority,
            payload={"until_known": True},
            max_attempts=rt.settings.catalog.max_attempts,
        )
        jobs.enqueue(backfill, now)
