"""What keeps the ledger moving: due jobs are woken, failed ones come back, and those of a dead worker do, too."""

from csi.logs import log
from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store.catalog import jobs

WAKE_SECONDS = 2.0
"""Between two wake-ups by the pulse; a job that ends wakes the next by itself."""


def wake_due(rt: Runtime) -> list[Wake]:
    """As many wake-ups as there are free threads for jobs, where one is due. A wake-up takes the most urgent job."""
    now = rt.now()
    if not rt.settings.catalog.enabled or 0 <= now - rt.memo.get("jobs_woken_at", float("-inf")) < WAKE_SECONDS:
        return []
    free = rt.share.jobs - jobs.running_count(now)
    found = jobs.due(now, free) if free > 0 else []
    if found:
        rt.memo["jobs_woken_at"] = now
    return [Wake("job", place) for place in range(len(found))]


def requeue_failed_and_stuck(rt: Runtime) -> int:
    """Failed jobs whose wait is over, and running ones whose worker is gone, are due."""
    now = rt.now()
    stuck = jobs.requeue_stuck(now)
    if stuck:
        log.warning("jobs of a worker that died are due again", jobs=stuck)
    return stuck + jobs.release_failed(now)
