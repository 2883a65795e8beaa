"""Process a video again by command that failed, was skipped, or waits."""

from csi.errors import CsiError
from csi.processing.pipeline import dead_job_actions
from csi.processing.pipeline.admit import BY_COMMAND
from csi.processing.runtime import Processing, StepWake, wake_job
from csi.processing.states import RESUMES_AS
from csi.processing.store import audit, dead_jobs, jobs, videos
from csi.processing.store.db import writing
from csi.processing.store.videos import ProcessingVideo


def retry_video(rt: Processing, video_id: str) -> tuple[str, list[StepWake]]:
    """What happens now, in words. A skipped video is discovered again, and no rule skips it this time.

    Paid calls that have an answer are not repeated. CsiError: there is nothing to retry.
    """
    video = videos.find(video_id)
    if video is None:
        raise CsiError(f"there is no video {video_id}; see: csi processing list")
    match video.status:
        case "skipped":
            with writing():
                videos.rediscover(video, rt.now(), BY_COMMAND)
                _audit(rt, video, "was skipped")
            return "is discovered again", [StepWake("admit")]
        case "failed":
            return "is retried", _retry_failed(rt, video)
        case "summarized":
            raise CsiError(f"{video_id} is summarized; another summary: csi processing summarise {video_id}")
        case _:
            with writing():
                due = [job.id for job in jobs.of_video(video.id) if jobs.make_due(job.id, rt.now())]
                if video.status == "discovered":
                    videos.defer(video.id, rt.now(), BY_COMMAND)
                _audit(rt, video, "ended its wait")
            if not due and video.status != "discovered":
                raise CsiError(f"{video.id} is being worked on")
            return "is due now", [wake_job(job_id) for job_id in due] or [StepWake("admit")]


def _retry_failed(rt: Processing, video: ProcessingVideo) -> list[StepWake]:
    dead = [job for job in jobs.of_video(video.id) if job.doc.status == "failed"]
    if not dead:
        raise CsiError(f"{video.id} has no failed job")
    job = dead[-1]  # of the later stage
    letter = dead_jobs.find(job.id)
    if letter is not None and letter.doc.dlq_status in ("pending", "investigating"):
        return dead_job_actions.retry(rt, job.id, force=True)
    with writing():
        jobs.reopen(job, rt.now())
        videos.move(video, RESUMES_AS[video.doc.processing_stage], rt.now())
        _audit(rt, video, "had failed")
    return [wake_job(job.id)]


def _audit(rt: Processing, video: ProcessingVideo, why: str) -> None:
    scope = rt.video_scope(dead_job_actions.AGENT, video)
    audit.write(scope, "retry_video", "success", rt.now(), data_summary=why, user_id=rt.operator)
