"""Which jobs are wanted now: one for each kind of statistics that something is due for."""

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
    """Every minute. A job that is open already is not doubled: it takes what is due when it comes to it."""
    if not rt.settings.catalog.enabled:
        return []
    now = rt.now()
    register_watched(rt)
    with writing():
        videos.move_older_to("medium", "tail", now - MEDIUM_DAYS * DAY)
        videos.move_older_to("hot", "medium", now - HOT_DAYS * DAY)
    wanted = [type for tier, type in TIERS.items() if videos.due(tier, now, 1)]
    wanted += ["REFRESH_CHANNEL_STATS"] if channels.due(now, 1) else []
    wanted += ["REQUEUE_STUCK"] if _hour_is_new(now) else []
    return [Wake("job", place) for place, type in enumerate(wanted) if _enqueue(rt, type, now)]


def _enqueue(rt: Runtime, type: str, now: float) -> bool:
    new = new_job(type, max_attempts=rt.settings.catalog.max_attempts)
    return not jobs.enqueue(new, now).is_duplicate


def _hour_is_new(now: float) -> bool:
    last = heartbeats.last_beat("requeue_stuck")
    if last is not None and 0 <= now - last < HOUR:
        return False
    heartbeats.beat("requeue_stuck", now, now)
    return True
