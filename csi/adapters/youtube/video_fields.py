"""Ids, links, times and subject fields (PRD §7.2) that all YouTube sources share."""

import re
from typing import Any

from csi import clock
from csi.adapters.base import RawEvent
from csi.errors import MalformedItem
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.text import TEXT_CHARS, TITLE_CHARS, clean

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_VALUE = frozenset({"null", "none", "undefined", "nan", "true", "false"})
_WEB = re.compile(r"https?://[^\s\"'<>]{1,2000}")

STREAMS = ("live", "upcoming")
"""Kinds that change with time: a stream becomes a video when it ends."""


def video_id(text: Any) -> str:
    """The text if it has the form of a video id, else MalformedItem: nothing else may get into a URL or a key."""
    if (found := valid_id(text)) is None:
        raise MalformedItem("the item has no usable video id")
    return found


def valid_id(text: Any) -> str | None:
    """None also for words that programs write where they have no value."""
    return text if isinstance(text, str) and _ID.fullmatch(text) and text.lower() not in _NO_VALUE else None


def shared_key(key: str) -> str | None:
    """The key of a video, whichever watch lists it, from an item's dedupe key. None: not the key of a video."""
    stem, name = "youtube:video:", key.split(":")[2:3]
    return f"youtube:sent:{name[0]}" if key.startswith(stem) and name and name[0] else None


def timestamp(text: Any, what: str) -> str:
    """A timestamp in the contract's form. Raises MalformedItem if it is not one, or is before 1970."""
    try:
        moment = clock.parse(str(text))
        if moment >= 0:
            return clock.iso(moment)
    except (ValueError, OverflowError, OSError) as error:
        raise MalformedItem(f"{what} is not a time") from error
    raise MalformedItem(f"{what} is before 1970")


def moment(text: Any) -> float | None:
    """Seconds since 1970; None for what is not a time."""
    try:
        return clock.parse(text) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


def epoch(timestamp_text: str) -> int:
    """The last part of an event_id. From `occurred_at`, not from the wall clock: a second read gives the same id."""
    return int(clock.parse(timestamp_text))


def subject(
    video: str,
    channel: str | None,
    *,
    title: Any,
    published_at: str,
    description: Any = None,
    thumbnail: Any = None,
    kind: str = "video",
    duration: Any = None,
    channel_title: Any = None,
) -> dict[str, Any]:
    """The fields of PRD §7.2 that every YouTube event has; optional ones are absent rather than null."""
    if channel is None:
        raise MalformedItem("the item names no channel")
    if not isinstance(title, str) or not title.strip():
        raise MalformedItem("the item has no title")
    fields: dict[str, Any] = {
        "platform": "youtube",
        "video_id": video,
        "channel_id": channel,
        "url": f"https://www.youtube.com/watch?v={video}",
        "title": clean(title, TITLE_CHARS),
        "published_at": published_at,
        "kind": kind,
    }
    if isinstance(channel_title, str) and channel_title.strip():
        fields["channel_title"] = clean(channel_title, TITLE_CHARS)
    if isinstance(description, str) and description:
        fields["description"] = clean(description, TEXT_CHARS)
    if isinstance(thumbnail, str) and _WEB.fullmatch(thumbnail):
        fields["thumbnail_url"] = thumbnail
    if isinstance(duration, int) and not isinstance(duration, bool) and duration > 0:
        fields["duration_seconds"] = duration
    return fields


def event(raw: RawEvent, *, event_id: str, key: str, occurred_at: str, **parts: Any) -> CreatorSignalEvent:
    """An event with default routing; the pipeline sets the watch's route profile."""
    return CreatorSignalEvent(
        event_id=event_id,
        dedupe_key=key,
        source=raw.source,
        event_type=raw.event_type,
        occurred_at=occurred_at,
        received_at=clock.iso(clock.now()),
        routing={"pipeline": "default", "priority": "standard", "tags": []},
        **parts,
    )
