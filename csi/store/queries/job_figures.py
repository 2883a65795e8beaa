"""Jobs of the catalogue in figures: how many are in which status, which are dead, what waits and for what."""

from collections.abc import Collection
from dataclasses import dataclass

from csi.store.catalog.jobs import OPEN, SETTLED, CatalogJob
from csi.store.db import column, fetch, marks

# Dead jobs that need attention: neither cancelled by command, nor archived after a month.
_NEEDS_ATTENTION = "status = 'dead' AND archived_at IS NULL AND error_message <> 'cancelled'"


def counts() -> dict[str, int]:
    """How many jobs are in each status."""
    found = dict(fetch("SELECT status, COUNT(*) FROM jobs GROUP BY status"))
    return {status: int(found.get(status, 0)) for status in (*OPEN, *SETTLED)}


def unfinished() -> dict[tuple[str, str], int]:
    """The number of open jobs and of dead jobs that need attention, by (type, status)."""
    sql = f"""SELECT type, status, COUNT(*) FROM jobs WHERE status IN ('pending', 'running', 'failed', 'dead')
        AND (status <> 'dead' OR ({_NEEDS_ATTENTION})) GROUP BY type, status"""
    return {(type, status): int(count) for type, status, count in fetch(sql)}


def dead_count() -> int:
    return int(fetch(f"SELECT COUNT(*) FROM jobs WHERE {_NEEDS_ATTENTION}")[0][0])


@dataclass(frozen=True)
class DeadJobs:
    """Dead jobs whose work no open job does."""

    for_good: tuple[str, ...] = ()
    """Their ids, newest first: they wait for the operator."""
    redriven: int = 0
    """These are tried again by themselves, the next one at `redrive_at`."""
    redrive_at: float | None = None
    since: float | None = None


def dead_jobs() -> DeadJobs:
    still_open = (
        "SELECT 1 FROM jobs o WHERE o.dedup_key = jobs.dedup_key AND o.status IN ('pending', 'running', 'failed')"
    )
    sql = f"""SELECT id, redrive_at, changed_at FROM jobs WHERE {_NEEDS_ATTENTION} AND NOT EXISTS ({still_open})
        ORDER BY changed_at DESC, id"""
    rows = fetch(sql)
    times = [at for _, at, _ in rows if at is not None]
    for_good = tuple(job_id for job_id, at, _ in rows if at is None)
    return DeadJobs(for_good, len(times), min(times, default=None), min((row[2] for row in rows), default=None))


def waiting_since(now: float) -> float | None:
    """When the longest waiting job that could be claimed was due. Jobs of paused channels do not count."""
    sql = """SELECT MIN(j.scheduled_at) FROM jobs j WHERE j.status = 'pending' AND j.scheduled_at <= ? AND (
        j.channel_id IS NULL OR j.channel_id NOT IN (SELECT c.id FROM channels c WHERE c.status = 'paused'))"""
    found = fetch(sql, now)[0][0]
    return None if found is None else float(found)


def waiting_reasons(found: Collection[CatalogJob], now: float) -> dict[str, str]:
    """By id, of pending jobs that cannot be claimed now: what each waits for."""
    refs = sorted({job.channel_id for job in found if job.status == "pending" and job.channel_id})
    paused = set(column(f"SELECT id FROM channels WHERE status = 'paused' AND id IN ({marks(refs)})", *refs))
    busy = set(column(f"SELECT channel_id FROM jobs WHERE status = 'running' AND channel_id IN ({marks(refs)})", *refs))
    reasons = {}
    for job in found:
        if job.status != "pending":
            continue
        if job.channel_id in paused:
            reasons[job.id] = f"its channel is paused; `csi channels resume {job.channel_id}` lets it run"
        elif job.scheduled_at > now:
            reasons[job.id] = job.error_message or "the time it is scheduled for"
        elif job.channel_id in busy:
            reasons[job.id] = "another job of its channel is running"
    return reasons
