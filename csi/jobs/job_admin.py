"""What a person does to jobs: find, enqueue, retry, cancel. For CLI and admin API."""

from csi.jobs.job_kinds import JobRefused, new_job
from csi.logs import log
from csi.runtime import Runtime
from csi.store.catalog import jobs, videos
from csi.store.catalog.jobs import CatalogJob, EnqueueResult

SHORTEST = 6
LONGEST_DELAY = 30 * 86_400.0


def find_job(text: str) -> CatalogJob:
    """By its id, or enough of its beginning or end. JobRefused when it is none, or more than one."""
    typed = text.strip().lower()
    if len(typed) < SHORTEST or not all(letter in "0123456789abcdef-" for letter in typed):
        raise JobRefused(f"{text[:40]!r} is not the id of a job; `csi jobs list` shows them")
    found = jobs.matching_id(typed)
    if not found:
        raise JobRefused(f"there is no job {text[:40]!r}; `csi jobs list` shows them")
    if len(found) > 1:
        raise JobRefused(f"several jobs are like {text[:40]!r}; give more of the id")
    return found[0]


def enqueue(
    rt: Runtime,
    type: str,
    *,
    channel_id: str | None = None,
    video_ids: tuple[str, ...] = (),
    priority: int | None = None,
    delay: float = 0.0,
) -> EnqueueResult:
    """JobRefused says what is wrong with the wish."""
    now = rt.now()
    if not 0 <= delay <= LONGEST_DELAY:
        raise JobRefused("a job can be put off for at most 30 days")
    new = new_job(
        type,
        channel_id=channel_id,
        video_ids=video_ids,
        priority=priority,
        scheduled_at=now + delay,
        max_attempts=rt.settings.catalog.max_attempts,
    )
    unknown = sorted(set(new.video_ids) - videos.known(new.video_ids))
    if unknown:
        more = f", nor are {len(unknown) - 1:,} others" if len(unknown) > 1 else ""
        raise JobRefused(f"video {unknown[0]!r} is not in the catalogue{more}")
    return jobs.enqueue(new, now)


def retry(rt: Runtime, job: CatalogJob) -> None:
    """A job that failed, is dead or waits is due now, and goes on where it was."""
    waits = job.status == "pending" and job.scheduled_at > rt.now()
    if not waits and job.status not in ("failed", "dead"):
        raise JobRefused(f"job {job.id} is {job.status}; only one that failed, is dead or waits can be retried")
    if job.archived_at is not None:
        raise JobRefused(f"job {job.id} is archived; enqueue a new one")
    if not (jobs.make_due_now(job, rt.now()) if waits else jobs.retry_now(job, rt.now())):
        raise JobRefused(f"job {job.id} was not retried: another job with its key is open, or it changed just now")
    log.info("job retried by command", job=job.id, type=job.type)


def cancel(rt: Runtime, job: CatalogJob) -> None:
    """An open job is dead; a worker that is at it stops at its next step."""
    if job.status in jobs.SETTLED:
        raise JobRefused(f"job {job.id} is {job.status}; there is nothing to cancel")
    if not jobs.cancel(job, rt.now()):
        raise JobRefused(f"job {job.id} changed just now; look at it again")
    log.info("job cancelled by command", job=job.id, type=job.type)
