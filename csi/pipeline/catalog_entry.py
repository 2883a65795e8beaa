"""A new upload that the ingester saw enters the catalogue at once, where its channel is tracked."""

from collections.abc import Iterable
from typing import Any

from csi import clock
from csi.ingester.event import CreatorSignalEvent
from csi.store.catalog import channels, videos
from csi.store.catalog.videos import RefreshPlan, VideoFacts


def enter(events: Iterable[CreatorSignalEvent], now: float) -> None:
    """Add videos of tracked channels to the catalogue as `hot` and due now: the first refresh reads their statistics
    from the API. One that is known stays as it is. Part of the caller's transaction."""
    found = [facts for event in events if (facts := _facts(event.subject)) is not None]
    tracked = channels.tracked_among({facts.channel_id for facts in found})
    if new := [(facts, RefreshPlan("hot", now)) for facts in found if facts.channel_id in tracked]:
        videos.add_unknown(new, now)


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
