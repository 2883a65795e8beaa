"""Keep the full-text search up to date: the maintenance loop indexes videos whose texts are new."""

from csi.processing.collection_models import TranscriptionJobDocument
from csi.processing.runtime import Processing
from csi.processing.store import artifacts, jobs, texts, videos
from csi.processing.store.db import writing

CHUNK = 20


def index_texts(rt: Processing) -> int:
    """Index one chunk. Returns how many videos. A crash repeats it, which changes nothing."""
    due = texts.due(CHUNK)
    for video_id in due:
        video, job = videos.get(video_id), jobs.find(jobs.job_id(jobs.TRANSCRIPTION, video_id))
        transcript = job.doc.transcript_text if job and isinstance(job.doc, TranscriptionJobDocument) else None
        found = {"title": f"{video.doc.title}\n{video.doc.channel_title}", "transcript": transcript or ""}
        for one in artifacts.of_video(video_id):
            if one.kind in ("summary", "summary_detailed"):
                found[one.kind] = rt.artifacts.read(one) or ""
        with writing():
            texts.put(video_id, found)
    return len(due)
