"""The event `video_taking_off`: a video gets many more views an hour than is usual for its channel."""

from typing import Any

from csi import clock
from csi.adapters.base import RawEvent
from csi.adapters.youtube import video_fields
from csi.errors import MalformedItem
from csi.ingester.event import CreatorSignalEvent

VIDEO_TAKING_OFF = "video_taking_off"


def item(subject: dict[str, Any], source: str, at: float) -> RawEvent:
    """The item that becomes the event. `subject`: the video, its views and the usual views of its channel."""
    return RawEvent(source, VIDEO_TAKING_OFF, {"subject": subject}, clock.iso(at))


def key(raw: RawEvent) -> str:
    """One for a video, however long the growth lasts."""
    return f"youtube:take_off:{video_fields.video_id(_subject(raw).get('video_id'))}"


def event(raw: RawEvent) -> CreatorSignalEvent:
    subject, at = _subject(raw), video_fields.timestamp(raw.occurred_at, "the time of the count")
    return video_fields.event(
        raw,
        event_id=f"src:yt:take_off:{subject.get('video_id')}:{video_fields.epoch(at)}",
        key=key(raw),
        occurred_at=at,
        subject=subject,
        metadata={"source_adapter": "catalogue_v1", "source_ref": subject.get("channel_id")},
    )


def _subject(raw: RawEvent) -> dict[str, Any]:
    subject = raw.payload.get("subject")
    if not isinstance(subject, dict):
        raise MalformedItem("the item has no subject")
    return subject
