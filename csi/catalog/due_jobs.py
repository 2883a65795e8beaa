"""Enqueue the jobs that are due: one for each kind of statistics with something to refresh."""

from csi.catalog.channel_admin import register_watched
from csi.catalog.refresh_schedule import DAY, HOT_DAYS, HOUR, MEDIUM_DAYS
from csi.jobs.job_kinds import new_job
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import heartbeats
from csi.store.catalog import channels, jobs, videos
from csi.store.catalog.videos import Tier
from csi.store.db import writing

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
    register_watched(rt)
    with writing():
        videos.move_older_to("medium", "tail", now - MEDIUM_DAYS * DAY)
        videos.move_older_to("hot", "medium", now - HOT_DAYS * DAY)
    wanted = [type for tier, type in TIERS.items() if videos.due(tier, now, 1)]
    wanted += ["REFRESH_CHANNEL_STATS"] if channels.due(now, 1) else []
    last = heartbeats.last_beat("requeue_stuck")
    if last is None or not 0 <= now - last < HOUR:
        heartbeats.beat("requeue_stuck", now, now)
        wanted.append("REQUEUE_STUCK")
    new = [new_job(type, max_attempts=rt.settings.catalog.max_attempts) for type in wanted]
    return [Wake("job", slot) for slot, job in enumerate(new) if not jobs.enqueue(job, now).is_duplicate]
