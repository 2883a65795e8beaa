"""The documents and notices that a video's routes require, also of a route that asks for it later."""

from csi.processing.collection_models import SummarizationJobDocument
from csi.processing.runtime import Processing
from csi.processing.sanitize import plain_line
from csi.processing.settings import DocumentKind, SignalRoute
from csi.processing.store import artifacts, audit, jobs, notices, received_events, videos
from csi.processing.store.videos import ProcessingVideo
from csi.processing.wake import StepWake, wake_job

AGENT = "summarizer"


def required_documents(rt: Processing, video: ProcessingVideo) -> tuple[DocumentKind, ...]:
    return tuple(dict.fromkeys(kind for route in _routes(rt, video) for kind in route.documents))


def complete_outputs(rt: Processing, video: ProcessingVideo, now: float) -> list[StepWake]:
    """Within a transaction: announce a summarized video, and reopen its job when documents are missing.

    The specification leads from `summarized` back to `transcribed` only through `failed`; both changes are one
    commit. Paid calls that have an answer are not repeated.
    """
    job = jobs.find(jobs.job_id(jobs.SUMMARIZATION, video.id))
    if video.status != "summarized" or job is None or not isinstance(job.doc, SummarizationJobDocument):
        return []
    if any(route.notify for route in _routes(rt, video)):  # the subject makes it one notice per video
        bullets = job.doc.summary.bullets
        body = f"{plain_line(bullets[0]) if bullets else ''}\n{video.url}".strip()
        notices.add(f"video:{video.id}", video.doc.title, body, due_at=now + rt.settings.notifications.window, now=now)
    written = {artifact.kind for artifact in artifacts.of_video(video.id)}
    missing = [kind for kind in required_documents(rt, video) if kind not in written]
    if not missing:
        return []
    videos.move(videos.move(video, "failed", now), "transcribed", now)
    jobs.reopen(job, now, was="completed")
    audit.write(rt.video_scope(AGENT, video), "resume", "success", now, data_summary=f"for {', '.join(missing)}")
    return [wake_job(job.id)]


def _routes(rt: Processing, video: ProcessingVideo) -> list[SignalRoute]:
    names = dict.fromkeys([video.pipeline, *received_events.pipelines_of(video.id)])
    return [route for name in names if (route := rt.route(name)) is not None]
