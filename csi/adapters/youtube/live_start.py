"""The event `live_started`: a stream or premiere that was announced in an event has begun."""

from typing import Any

from csi import clock
from csi.adapters.base import RawEvent
from csi.adapters.youtube import video_fields
from csi.errors import MalformedItem
from csi.ingester.event import CreatorSignalEvent

LIVE_STARTED = "live_started"


def awaited_video(event: CreatorSignalEvent) -> str | None:
    """The video of an event that announces a stream. None: it announces none."""
    if event.event_type == LIVE_STARTED or event.subject.get("kind") != "upcoming":
        return None
    return video_fields.valid_id(event.subject.get("video_id"))


def started_item(subject: dict[str, Any], source: str, started_at: float) -> RawEvent:
    """The item that becomes the event of a stream that was announced with this subject."""
    return RawEvent(source, LIVE_STARTED, {"subject": subject}, clock.iso(started_at))


def started_key(raw: RawEvent) -> str:
    """One for a video and watch, however often its start is seen."""
    video, playlist, _ = _parts(raw)
    return f"youtube:live:{video}:{playlist}" if playlist else f"youtube:live:{video}"


def started_event(raw: RawEvent) -> CreatorSignalEvent:
    video, playlist, subject = _parts(raw)
    started_at = video_fields.timestamp(raw.occurred_at, "the time of the start")
    place = f"{video}:{playlist}" if playlist else video
    return video_fields.event(
        raw,
        event_id=f"src:yt:live:{place}:{video_fields.epoch(started_at)}",
        key=started_key(raw),
        occurred_at=started_at,
        subject=subject | {"kind": "live", "started_at": started_at},
        metadata={"source_adapter": "youtube_live_v1", "source_ref": playlist or subject.get("channel_id")},
    )


def _parts(raw: RawEvent) -> tuple[str, str | None, dict[str, Any]]:
    subject = raw.payload.get("subject")
    if not isinstance(subject, dict):
        raise MalformedItem("the item has no subject")
    return video_fields.video_id(subject.get("video_id")), video_fields.valid_id(subject.get("playlist_id")), subject
