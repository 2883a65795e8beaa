"""Operator actions on jobs, for the CLI and the admin API: find, enqueue, retry, cancel."""

from csi.jobs.job_kinds import JobRefused, new_job
from csi.logs import log
from csi.runtime import Runtime
from csi.store.catalog import jobs, videos
from csi.store.catalog.jobs import CatalogJob, EnqueueResult

SHORTEST = 6
LONGEST_DELAY = 30 * 86_400.0


def find_job(text: str) -> CatalogJob:
    """The job with this id, or with this beginning or end of it. JobRefused when none or several match."""
    typed = text.strip().lower()
    if len(typed) < SHORTEST or not all(letter in "0123456789abcdef-" for letter in typed):
        raise JobRefused(f"{text[:40]!r} is not a job id; `csi jobs list` shows them")
    found = jobs.matching_id(typed)
    if not found:
        raise JobRefused(f"there is no job {text[:40]!r}; `csi jobs list` shows them")
    if len(found) > 1:
        raise JobRefused(f"several jobs match {text[:40]!r}; give more of the id")
    return found[0]


def enqueue(
    rt: Runtime,
    type: str,
    *,
    channel_id: str | None = None,
    video_ids: tuple[str, ...] = (),
    priority: int | None = None,
    payload: dict[str, object] | None = None,
    delay: float = 0.0,
) -> EnqueueResult:
    """Store a job. JobRefused says what is wrong with the arguments."""
    now = rt.now()
    if not 0 <= delay <= LONGEST_DELAY:
        raise JobRefused("a job can be delayed by at most 30 days")
    new = new_job(
        type,
        channel_id=channel_id,
        video_ids=video_ids,
        priority=priority,
        payload=payload,
        scheduled_at=now + delay,
        max_attempts=rt.settings.catalog.max_attempts,
    )
    unknown = sorted(set(new.video_ids) - videos.known(new.video_ids))
    if unknown:
        more = f", and {len(unknown) - 1:,} others are not either" if len(unknown) > 1 else ""
        raise JobRefused(f"video {unknown[0]!r} is not in the catalogue{more}")
    return jobs.enqueue(new, now)


def retry(rt: Runtime, job: CatalogJob) -> None:
    """Make a failed, dead or postponed job due now; it resumes at its last step. An archived one has lost its progress:
    a new job begins its work from the start."""
    waits = job.status == "pending" and job.scheduled_at > rt.now()
    if not waits and job.status not in ("failed", "dead"):
        raise JobRefused(f"job {job.id} is {job.status}; only a failed, dead or postponed job can be retried")
    if job.archived_at is not None:
        enqueue(rt, job.type, channel_id=job.channel_id, priority=job.priority)
    elif not (jobs.make_due_now(job, rt.now()) if waits else jobs.retry_now(job, rt.now())):
        raise JobRefused(f"job {job.id} was not retried: another job with its key is open, or its state just changed")
    log.info("job retried by the operator", job=job.id, type=job.type)


def cancel(rt: Runtime, job: CatalogJob) -> None:
    """Set an open job to dead; a worker that runs it stops at its next step. A dead job is no longer reported, and not
    tried again without a command."""
    if job.status == "completed" or (job.status == "dead" and job.error_message == "cancelled"):
        raise JobRefused(f"job {job.id} is {job.status}; there is nothing to cancel")
    if not jobs.cancel(job, rt.now()):
        raise JobRefused(f"the state of job {job.id} just changed; check it with csi jobs show")
    log.info("job cancelled by the operator", job=job.id, type=job.type)
