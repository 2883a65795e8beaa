"""What a push of YouTube's hub says: new or changed videos, and videos that are deleted or private."""

import re
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

from csi import clock
from csi.adapters.base import PushContent, RawEvent
from csi.adapters.youtube import feed_guard, video_fields
from csi.adapters.youtube.channel_uploads import video_key
from csi.errors import MalformedItem, SourceError
from csi.ingester.event import CreatorSignalEvent

VIDEO_REMOVED = "video_removed"
MAX_ENTRIES = 100

_ATOM = "{http://www.w3.org/2005/Atom}"
_VIDEO = "{http://www.youtube.com/xml/schemas/2015}videoId"
_TOMBSTONE = "{http://purl.org/atompub/tombstones/1.0}deleted-entry"
_FRACTION = re.compile(r"(\.\d{6})\d+")


def read(body: bytes, now: float) -> PushContent:
    """SourceError for a document that is no Atom feed, or beyond the caps of a feed."""
    try:
        root = ElementTree.fromstring(feed_guard.checked(body))  # noqa: S314 the guard refuses DTDs and entities
    except ElementTree.ParseError as error:
        raise SourceError("the push is not XML", kind="malformed") from error
    found = (entry.findtext(_VIDEO) for entry in root.iter(f"{_ATOM}entry"))
    keys = [video_key(video) for text in found if (video := video_fields.valid_id((text or "").strip()))]
    removed = {}
    for grave in list(root.iter(_TOMBSTONE))[:MAX_ENTRIES]:
        video = video_fields.valid_id(grave.get("ref", "").removeprefix("yt:video:"))
        if video is not None:
            key = video_key(video)
            removed[key] = now
            with suppress(ValueError, OverflowError):  # the hub's time if it can be read and is not in the future
                removed[key] = min(max(clock.parse(_FRACTION.sub(r"\1", grave.get("when", ""))), 0.0), now)
    return PushContent(tuple(dict.fromkeys(keys[:MAX_ENTRIES])), removed)


def removed_item(subject: dict[str, Any], source: str, removed_at: float) -> RawEvent:
    """The item that becomes the event `video_removed` of a video that was emitted with this subject."""
    return RawEvent(source, "video_removed", {"subject": subject}, clock.iso(removed_at))


def removed_event(raw: RawEvent) -> CreatorSignalEvent:
    """One for a video, however often its removal is announced."""
    subject = raw.payload.get("subject")
    if not isinstance(subject, dict):
        raise MalformedItem("the item has no subject")
    video = video_fields.video_id(subject.get("video_id"))
    removed_at = video_fields.timestamp(raw.occurred_at, "the time of the removal")
    return video_fields.event(
        raw,
        event_id=f"src:yt:removed:{video}:{video_fields.epoch(removed_at)}",
        key=f"youtube:removed:{video}",
        occurred_at=removed_at,
        subject=subject | {"removed_at": removed_at},
        metadata={"source_adapter": "youtube_push_v1", "source_ref": subject.get("channel_id")},
    )
