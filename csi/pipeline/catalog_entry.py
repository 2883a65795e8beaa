"""A new upload that the ingester saw enters the catalogue at once, where its channel is tracked."""

from typing import Any

from csi import clock
from csi.ingester.event import CreatorSignalEvent
from csi.store.catalog import channels, videos
from csi.store.catalog.videos import RefreshPlan, VideoFacts


def enter(event: CreatorSignalEvent, now: float) -> bool:
    """Add the video to the catalogue as `hot` and due now: the first refresh reads its statistics from the API. False:
    its channel is not tracked, or the video is known. Part of the caller's transaction."""
    facts = _facts(event.subject)
    if facts is None or not channels.is_tracked(facts.channel_id):
        return False
    return bool(videos.add_unknown([(facts, RefreshPlan("hot", now))], now))


def _facts(subject: dict[str, Any]) -> VideoFacts | None:
    """None: the event is no upload that the catalogue can use. The event is stored and delivered all the same."""
    if subject.get("platform") != "youtube" or "video_id" not in subject or "channel_id" not in subject:
        return None
    try:
        published_at = clock.parse(subject["published_at"])
    except (KeyError, ValueError, OverflowError, AttributeError, TypeError):
        return None
    return VideoFacts(
        id=subject["video_id"],
        channel_id=subject["channel_id"],
        title=subject.get("title", ""),
        published_at=published_at,
        description=subject.get("description"),
        duration=subject.get("duration_seconds"),
        thumbnail_url=subject.get("thumbnail_url"),
    )
