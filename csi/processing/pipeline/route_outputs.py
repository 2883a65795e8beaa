"""What a video is to become: the wishes of every pipeline that it came by, also of one that came late."""

from csi.processing.documents import SummarizationJobDocument
from csi.processing.runtime import Processing
from csi.processing.sanitize import plain_line
from csi.processing.settings import DocumentKind, Route
from csi.processing.store import artifacts, audit, jobs, notices, signals, videos
from csi.processing.store.videos import Video
from csi.processing.wake import Wake, wake_job

AGENT = "summarizer"


def documents_of(rt: Processing, video: Video) -> tuple[DocumentKind, ...]:
    return tuple(dict.fromkeys(kind for route in _routes(rt, video) for kind in route.documents))


def catch_up(rt: Processing, video: Video, now: float) -> list[Wake]:
    """Within a transaction: a summarized video is announced, and goes back for documents that it lacks.

    The specification's way back leads through `failed`; both steps are one commit. What was paid is not paid again.
    """
    job = jobs.find(jobs.job_id(jobs.SUMMARIZATION, video.id))
    if video.status != "summarized" or job is None or not isinstance(job.doc, SummarizationJobDocument):
        return []
    _announce(rt, video, job.doc.summary.bullets, now)
    made = {artifact.kind for artifact in artifacts.of_video(video.id)}
    missing = [kind for kind in documents_of(rt, video) if kind not in made]
    if not missing:
        return []
    videos.move(videos.move(video, "failed", now), "transcribed", now)
    jobs.reopen(job, now, was="completed")
    scope = audit.Scope(AGENT, video.correlation_id, "video", video.id, rt.settings.retention.audit_days)
    audit.write(scope, "resume", "success", now, data_summary=f"for {', '.join(missing)}")
    return [wake_job(job.id)]


def _announce(rt: Processing, video: Video, bullets: list[str], now: float) -> None:
    """Once for a video, however often it comes."""
    if not any(route.notify for route in _routes(rt, video)):
        return
    body = f"{plain_line(bullets[0]) if bullets else ''}\n{video.url}".strip()
    notices.add(f"video:{video.id}", video.doc.title, body, due_at=now + rt.settings.notifications.window, now=now)


def _routes(rt: Processing, video: Video) -> list[Route]:
    names = dict.fromkeys([video.pipeline, *signals.pipelines_of(video.id)])
    return [route for name in names if (route := rt.route(name)) is not None]
