"""The catalogue's jobs: which are due, the handler of each kind, and REFRESH_…: 50 channels or videos per API unit.

A refreshed row is no longer due, so a crash costs at most one call.
"""

from functools import partial

from csi.catalog import capture, channel_admin, data_api, take_off
from csi.catalog.backfill import backfill
from csi.catalog.refresh_schedule import DAY, DETAILS_DAYS, HOT_DAYS, HOUR, MEDIUM_DAYS, next_channel_refresh
from csi.errors import SourceError
from csi.jobs import job_admin
from csi.jobs.run_job import Handler, JobDone, StepDone
from csi.logs import log
from csi.pipeline.poll import poll_early
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import heartbeats
from csi.store.catalog import channels, jobs, videos
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.jobs import CatalogJob
from csi.store.catalog.videos import Tier, VideoCounts
from csi.store.db import writing

BATCH = 50
TIERS: dict[Tier, str] = {
    "hot": "REFRESH_HOT_VIDEOS",
    "medium": "REFRESH_MEDIUM_VIDEOS",
    "tail": "REFRESH_VIDEO_STATS",
}


def plan_jobs(rt: Runtime) -> list[Wake]:
    """Called every minute. An open job is not duplicated: when it runs, it takes everything that is due."""
    if not rt.settings.catalog.enabled:
        return []
    now = rt.now()
    channel_admin.register_watched(rt)
    with writing():
        videos.move_older_to("medium", "tail", now - MEDIUM_DAYS * DAY)
        videos.move_older_to("hot", "medium", now - HOT_DAYS * DAY)
        channels.clear_errors()
    for ref in channels.without_backfill():
        channel_admin.backfill(rt, channel_admin.find_channel(rt, ref))
    wanted = [type for tier, type in TIERS.items() if videos.due(tier, now, 1)]
    wanted += ["REFRESH_CHANNEL_STATS"] if channels.due(now, 1) else []
    last = heartbeats.last_beat("requeue_stuck")
    if last is None or not 0 <= now - last < HOUR:
        heartbeats.write("requeue_stuck", now, now)
        wanted.append("REQUEUE_STUCK")
    return [Wake("job", slot) for slot, type in enumerate(wanted) if not job_admin.enqueue(rt, type).is_duplicate]


def _refresh_videos(tier: Tier, rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    """The videos of one tier, or those that the job names. Statistics alone are read where their own bucket has units;
    videos whose details are old, missing ones and those that the job names are read whole."""
    done = {"videos": 0, "missing": 0, "asked": 0} | job.progress
    now = rt.now()
    if job.video_ids:
        wanted = videos.by_ids(job.video_ids[done["asked"] : done["asked"] + BATCH])
    elif data_api.uses_stats_bucket(rt):
        wanted = videos.without_details(tier, now, now - DETAILS_DAYS[tier] * DAY, BATCH)
    else:
        wanted = videos.due(tier, now, BATCH)
    counts: dict[str, VideoCounts] | None = None
    if not wanted and not job.video_ids and (wanted := videos.due(tier, now, BATCH)):
        counts = data_api.read_counts(rt, job, [video.id for video in wanted])
    if not wanted:
        return JobDone({"videos": done["videos"], "missing": done["missing"]})
    # A video without statistics is read by videos.list, which tells whether it is missing.
    whole = [video for video in wanted if counts is None or video.id not in counts]
    shown = data_api.read_videos(data_api.open_api(rt, job), [video.id for video in whole]) if whole else {}
    # A video that moved to an untracked channel counts as missing: it could not be stored, and would stay due.
    tracked = channels.known(list({facts.channel_id for facts in shown.values()}))
    found = {ref: facts for ref, facts in shown.items() if facts.channel_id in tracked}
    gone = [video for video in whole if video.id not in found]
    progress = {
        "videos": done["videos"] + len(wanted) - len(gone),
        "missing": done["missing"] + len(gone),
        "asked": done["asked"] + BATCH,
    }

    def save() -> None:
        now = rt.now()
        capture.record_videos(list(found.values()), now)
        capture.record_counts(list((counts or {}).values()), wanted, now)
        take_off.emit(rt, [*found, *(counts or {})], now)
        newly = capture.record_missing(gone, now)
        if newly:
            log.info("videos are missing at YouTube", videos=newly)

    return StepDone(progress, save)


def _refresh_channels(rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    done = {"channels": 0, "missing": 0} | job.progress
    ids = channels.due(rt.now(), BATCH)
    if not ids:
        return JobDone(done)
    found = data_api.read_channels(data_api.open_api(rt, job), ids)
    gone = [ref for ref in ids if ref not in found]
    progress = {"channels": done["channels"] + len(found), "missing": done["missing"] + len(gone)}

    def save() -> None:
        now = rt.now()
        for facts in found.values():
            _catch_up(rt, facts, now)
            capture.record_channel(facts, now)
        for ref in gone:
            if channels.note_missing(ref, now - 0.9 * DAY, next_channel_refresh(now), now):
                log.warning("channel is gone from YouTube", channel=ref)

    return StepDone(progress, save)


def _catch_up(rt: Runtime, facts: ChannelFacts, now: float) -> None:
    """Enqueue a backfill of the newest uploads when the channel gained more videos than the feed listed.

    A filter, an outage or a missing watch can be the reason.
    """
    before = channels.find(facts.id)
    if before is None or before.backfilled_at is None or before.video_count is None or facts.video_count is None:
        return
    seen = videos.published_since(facts.id, before.last_refreshed_at or now)
    if facts.video_count - before.video_count > seen:
        channel_admin.backfill(rt, before, until_known=True)


def _poll_feed(rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    """RSS_POLL_CHANNEL: poll the channel's watch now."""
    feed = channels.feed_of(job.channel_id or "")
    if feed is None or feed.status == "paused":
        raise SourceError(
            "the channel's feed is not watched, or paused; use `csi sources add` or `csi sources resume`", kind="denied"
        )
    wakes = poll_early(rt, feed.watch_id)
    return JobDone({"items": sum(wake.step == "ingest" for wake in wakes)}, wakes=tuple(wakes))


HANDLERS: dict[str, Handler] = {
    "BACKFILL_CHANNEL": backfill,
    "REFRESH_CHANNEL_STATS": _refresh_channels,
    **{type: partial(_refresh_videos, tier) for tier, type in TIERS.items()},
    "RSS_POLL_CHANNEL": _poll_feed,
    "REQUEUE_STUCK": lambda rt, job: JobDone({"jobs": jobs.requeue_stuck(rt.now())}),
}
