"""The handler of each kind of job."""

from csi.catalog.backfill import backfill
from csi.catalog.refresh import refresh_channels, refresh_tier
from csi.errors import SourceError
from csi.jobs.run_job import Handler, JobDone, StepDone
from csi.pipeline.poll import poll_early
from csi.runtime import Runtime
from csi.store.catalog import channels, jobs
from csi.store.catalog.jobs import CatalogJob


def poll_feed(rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    """RSS_POLL_CHANNEL: poll the channel's watch now."""
    feed = channels.feed_of(job.channel_id or "")
    if feed is None or feed.status == "paused":
        raise SourceError(
            "the channel's feed is not watched, or paused; use `csi sources add` or `csi sources resume`", kind="denied"
        )
    wakes = poll_early(rt, feed.watch_id)
    items = sum(wake.step == "ingest" for wake in wakes)
    return JobDone({"items": items}, wakes=tuple(wakes))


def requeue_stuck(rt: Runtime, job: CatalogJob) -> StepDone | JobDone:
    return JobDone({"jobs": jobs.requeue_stuck(rt.now())})


HANDLERS: dict[str, Handler] = {
    "BACKFILL_CHANNEL": backfill,
    "REFRESH_CHANNEL_STATS": refresh_channels,
    "REFRESH_HOT_VIDEOS": refresh_tier("hot"),
    "REFRESH_MEDIUM_VIDEOS": refresh_tier("medium"),
    "REFRESH_VIDEO_STATS": refresh_tier("tail"),
    "RSS_POLL_CHANNEL": poll_feed,
    "REQUEUE_STUCK": requeue_stuck,
}
