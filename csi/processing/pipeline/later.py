"""What a video does not have yet: when a transcript is asked for again, and when a stream is over.

The job waits with a due time and a reason; the video's status does not change. The maintenance loop finds the job.
"""

from collections.abc import Sequence
from typing import Any

from csi import clock
from csi.processing.providers.base import ProviderError
from csi.processing.providers.captions import NOT_BEGUN
from csi.processing.providers.video_facts import VideoFacts
from csi.processing.runtime import Processing
from csi.processing.settings import STREAMS
from csi.processing.store import videos
from csi.processing.store.videos import ProcessingVideo

TRANSCRIPT = "transcript"
"""What a job waits for whose video has no transcript yet."""
STREAM_END = "stream_end"
"""What a job waits for whose video is a stream or a premiere that is not over."""

HOUR = 3600.0
STREAM_ASKS = tuple(hours * HOUR for hours in (1, 3, 6, 12, 24, 48, 72, 120, 168, 240, 336, 504, 720))
"""Ages at which a stream is looked at whose state is not known, counted from its discovery: 30 days in all."""
AFTER_START = 600.0
WHILE_LIVE = 1800.0
LOOK_AGAIN = 6 * HOUR
"""An announced start may be moved: a stream is looked at again after this time at the latest."""

_LATER = frozenset({"captions_off", "wrong_language", "video_unavailable", "no_speech", "no_file", NOT_BEGUN})


def may_come_later(error: ProviderError, *, is_free: bool) -> bool:
    """Whether there may be a transcript tomorrow. A paid transcript is final: asking again would be paid again."""
    return error.fault == "absent" and (error.code == "no_audio" or (is_free and error.code in _LATER))


def next_ask(ages: Sequence[float], since: float, now: float) -> float | None:
    """The next time by the age of the video. None: the last one is over."""
    return min((since + age for age in ages if since + age > now), default=None)


def published_at(video: ProcessingVideo) -> float:
    return clock.parse(video.doc.published_at)


def asked_again_at(
    rt: Processing, video: ProcessingVideo, available_at: float | None, now: float, *, has_begun: bool = True
) -> float | None:
    """When this video's transcript is asked for again; `available_at`: when its stream ended."""
    if video.kind in STREAMS or not has_begun:
        return next_ask(STREAM_ASKS, video.discovered_at, now)
    since = max(published_at(video), available_at or 0.0)
    # A publication in the future is a premiere, or a wrong clock: the age counts from its discovery.
    return next_ask(rt.settings.transcription.captions.ask_again, min(since, now), now)


def stream_looked_at(facts: VideoFacts | None, video: ProcessingVideo, now: float) -> float | None:
    """When the stream is looked at again. None: it is over, or its transcript is asked for without knowing."""
    if facts is None or facts.broadcast is None:
        return now + STREAM_ASKS[0] if now - video.discovered_at < STREAM_ASKS[0] else None
    if facts.broadcast == "live":
        return now + WHILE_LIVE
    if facts.broadcast == "upcoming":
        start = now if facts.starts_at is None else facts.starts_at
        return min(max(start, now) + AFTER_START, now + LOOK_AGAIN)
    return None


def find_facts(rt: Processing, video: ProcessingVideo) -> VideoFacts | None:
    """What the sources know together, the first one first. None: none of them knows the video."""
    found: VideoFacts | None = None
    is_stream = video.kind in STREAMS
    for source in rt.fact_sources:
        facts = source.find(video.id, is_stream=is_stream)
        if facts is not None:
            found = facts if found is None else found.filled_from(facts)
        if found is not None and found.duration and (found.broadcast or not is_stream):
            break
    return found


def lacks_facts(video: ProcessingVideo) -> bool:
    doc = video.doc
    is_named = doc.title != video.id and doc.channel_title not in ("", doc.channel_id)
    return not doc.duration_sec or doc.view_count is None or not is_named


def learn_facts(video: ProcessingVideo, facts: VideoFacts, now: float, *, kind: str | None = None) -> ProcessingVideo:
    """Within a transaction: fill what the video's document does not have. A known value stays."""
    doc = video.doc
    values: dict[str, Any] = {}
    if facts.duration and not doc.duration_sec:
        values["duration_sec"] = facts.duration
    if facts.view_count is not None and doc.view_count is None:
        values["view_count"] = facts.view_count
    if facts.title and doc.title == video.id:
        values["title"] = facts.title
    if facts.channel_id and not doc.channel_id:
        values["channel_id"] = facts.channel_id
    if facts.channel_title and doc.channel_title in ("", doc.channel_id):
        values["channel_title"] = facts.channel_title
    if not values and kind in (None, video.kind):
        return video
    return videos.learn(video, now, kind=kind or video.kind, **values)
