"""Videos that an operator names: one by its URL (`manual`), or the rows of a list (`sheet_backfill`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from csi import clock
from csi.errors import CsiError, NetError
from csi.net import HttpLimits
from csi.processing.collection_models import VideoDocument
from csi.processing.pipeline.admit import BY_COMMAND
from csi.processing.pipeline.later import find_facts
from csi.processing.providers.video_facts import VideoFacts
from csi.processing.runtime import Processing
from csi.processing.settings import STREAMS
from csi.processing.store import audit, videos
from csi.processing.store.db import writing
from csi.processing.store.videos import ProcessingVideo
from csi.processing.video_lists import MAX_BYTES, ListedVideo, UnreadableList

AGENT = "operator"
Source = Literal["manual", "sheet_backfill"]
LIMITS = HttpLimits(total=60.0, max_body=MAX_BYTES + 1, max_redirects=3)


@dataclass(frozen=True)
class AddResult:
    """What became of one row."""

    line: int
    text: str
    result: Literal["added", "known", "invalid"]
    video_id: str | None = None
    title: str | None = None
    error: str | None = None


def read_source(rt: Processing, where: str) -> bytes:
    """The bytes of a file, or of a spreadsheet that is published as CSV. Read once, as a whole: a list that changes
    meanwhile is refused."""
    if where.startswith(("http://", "https://")):
        try:
            answer = rt.net.get(where, headers={"Accept": "text/csv, text/plain"}, limits=LIMITS)
        except NetError as error:
            raise UnreadableList(f"the spreadsheet cannot be read: {error}") from error
        if answer.status != 200:
            raise UnreadableList(
                f"the spreadsheet answers {answer.status}; publish it to the web as CSV (File, Share, Publish to web)"
            )
        return bytes(answer.body)
    path = Path(where)
    try:
        before = path.stat()
        if not path.is_file():
            raise UnreadableList(f"{path}: not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        after = path.stat()
    except OSError as error:
        raise UnreadableList(f"{path}: cannot be read: {error.strerror or error}") from error
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise UnreadableList(f"{path}: it changed while it was read; nothing was added, try again")
    return content


def add_videos(
    rt: Processing, listed: Sequence[ListedVideo], source: Source, pipeline: str, *, dry_run: bool = False
) -> list[AddResult]:
    """Discover each video, unless it is known. No rule skips one that is named alone (`manual`)."""
    seen, results = set[str](), []
    for row in listed:
        if row.error is not None or row.video_id is None:
            results.append(AddResult(row.line, row.text, "invalid", row.video_id, error=row.error))
            continue
        known = videos.find(row.video_id)
        if known is not None or row.video_id in seen:
            words = "in the list twice" if known is None else f"is {known.status}"
            results.append(
                AddResult(row.line, row.text, "known", row.video_id, known.doc.title if known else None, words)
            )
            continue
        seen.add(row.video_id)
        title = row.title
        if not dry_run:
            # What the list says, else what the catalogue and YouTube know.
            now = rt.now()
            video = _video(row, VideoFacts(), source, pipeline, now)
            if rt.fact_sources and (facts := find_facts(rt, video)) is not None:
                video = _video(row, facts, source, pipeline, now)
            title = video.doc.title
            with writing():
                if not videos.add(video, now):
                    raise CsiError(f"{video.id} was added by another process meanwhile")
                if video.doc.source == "manual":
                    videos.defer(video.id, now, BY_COMMAND)
                scope = rt.video_scope(AGENT, video)
                audit.write(scope, "add_video", "success", now, data_summary=video.doc.source, user_id=rt.operator)
        results.append(AddResult(row.line, row.text, "added", row.video_id, title))
    return results


def _video(row: ListedVideo, facts: VideoFacts, source: Source, pipeline: str, now: float) -> ProcessingVideo:
    video_id, moment = str(row.video_id), clock.iso(now)
    published = None if facts.published_at is None else clock.iso(facts.published_at)
    channel_id = row.channel_id or facts.channel_id or ""
    doc = VideoDocument(
        video_id=video_id,
        title=row.title or facts.title or video_id,
        published_at=row.published_at or published or moment,
        channel_id=channel_id,
        channel_title=row.channel_title or facts.channel_title or channel_id,
        duration_sec=facts.duration or 0.0,
        view_count=facts.view_count,
        status="discovered",
        processing_stage="scraping",
        discovered_at=moment,
        updated_at=moment,
        source=source,
        tags=list(row.tags) or None,
        priority=row.priority,
    )
    kind = facts.broadcast if facts.broadcast in STREAMS else "video"
    url = f"https://www.youtube.com/watch?v={video_id}"
    return ProcessingVideo(doc, pipeline, str(kind), url, f"{source}:{video_id}", now)
