"""The maintenance loop's part for jobs: wake due jobs, requeue failed ones and those of a dead worker."""

from csi.logs import log
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store.catalog import jobs

WAKE_SECONDS = 2.0
"""Between two wake-ups by the maintenance loop; a finished job wakes the next one directly."""


def wake_due(rt: Runtime) -> list[Wake]:
    """One wake-up for each due job, up to the number of free job slots. A wake-up takes the most urgent job."""
    now = rt.now()
    if not rt.settings.catalog.enabled or 0 <= now - rt.process.jobs_woken_at < WAKE_SECONDS:
        return []
    # A wake-up beyond the free slots would hold a worker thread that polling and delivery need.
    free = rt.share.jobs - jobs.running_count(now)
    found = jobs.due(now, free) if free > 0 else []
    if found:
        rt.process.jobs_woken_at = now
    return [Wake("job", slot) for slot in range(len(found))]


def requeue_failed_and_stuck(rt: Runtime) -> int:
    """Make due: failed jobs whose wait has ended, and running jobs whose lease has expired. Returns how many."""
    now = rt.now()
    stuck = jobs.requeue_stuck(now)
    if stuck:
        log.warning("jobs with an expired lease requeued", jobs=stuck)
    return stuck + jobs.release_failed(now)
