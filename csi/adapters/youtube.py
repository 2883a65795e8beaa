"""What all YouTube sources share: ids, links, the subject's fields (PRD §7.2), and the Data API's errors."""

import json
import re
from typing import Any

from csi import clock
from csi.adapters.base import RawEvent
from csi.errors import MalformedItem, SourceError
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.text import TEXT_CHARS, TITLE_CHARS, clean
from csi.net import Answer

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WEB = re.compile(r"https?://[^\s\"'<>]{1,2000}")

# Decide by reason: 403 alone is quota, key, permission and private list alike (FACTS 1.1).
_REASONS = {
    "quotaExceeded": (
        "quota",
        "the API's daily quota is used up; polling goes on after midnight Pacific time",
    ),
    "dailyLimitExceeded": (
        "quota",
        "the API's daily quota is used up; polling goes on after midnight Pacific time",
    ),
    "rateLimitExceeded": ("throttled", "the API asks for fewer requests"),
    "userRateLimitExceeded": ("throttled", "the API asks for fewer requests"),
    "keyInvalid": ("auth", "the API key is not valid; check YOUTUBE_API_KEY"),
    "API_KEY_INVALID": ("auth", "the API key is not valid; check YOUTUBE_API_KEY"),
    "accessNotConfigured": ("auth", "the YouTube Data API is not enabled for this key's project"),
    "SERVICE_DISABLED": ("auth", "the YouTube Data API is not enabled for this key's project"),
    "API_KEY_SERVICE_BLOCKED": ("auth", "the API key's restrictions do not allow the YouTube Data API"),
    "ipRefererBlocked": ("auth", "the API key's restrictions do not allow this address"),
    "forbidden": ("auth", "the API refuses access; a key is missing or may not read this"),
    "playlistNotFound": ("missing", "there is no such playlist, or it is private"),
    "playlistItemsNotAccessible": ("denied", "the playlist is private; a key alone cannot read it"),
    "invalidPageToken": ("transient", "the playlist changed while it was read"),
}


def video_id(text: Any) -> str:
    """A video's id, or MalformedItem: what is not an id never reaches a URL or a key."""
    if not isinstance(text, str) or _ID.fullmatch(text) is None:
        raise MalformedItem("the item has no usable video id")
    return text


def valid_id(text: Any) -> str | None:
    return text if isinstance(text, str) and _ID.fullmatch(text) else None


def watch_url(video: str) -> str:
    return f"https://www.youtube.com/watch?v={video}"


def timestamp(text: Any, what: str) -> str:
    try:
        return clock.normalize(str(text))
    except (ValueError, OverflowError) as error:
        raise MalformedItem(f"{what} is not a time") from error


def epoch(timestamp_text: str) -> int:
    """The last part of an event_id: from `occurred_at`, never from the wall clock, so that it is the same for ever."""
    return int(clock.parse(timestamp_text))


def subject(
    video: str,
    channel: str | None,
    *,
    title: Any,
    published_at: str,
    description: Any = None,
    thumbnail: Any = None,
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
        "url": watch_url(video),
        "title": clean(title, TITLE_CHARS),
        "published_at": published_at,
    }
    if isinstance(description, str) and description:
        fields["description"] = clean(description, TEXT_CHARS)
    if isinstance(thumbnail, str) and _WEB.fullmatch(thumbnail):
        fields["thumbnail_url"] = thumbnail
    return fields


def event(raw: RawEvent, *, event_id: str, key: str, occurred_at: str, **parts: Any) -> CreatorSignalEvent:
    """An event with neutral routing; the walk attaches the watch's route profile."""
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


def api_json(answer: Answer) -> dict[str, Any]:
    """The body of a good API answer; SourceError with the reason in words otherwise."""
    body = _parse(answer.body)
    if answer.status == 200 and body is not None and "error" not in body:
        return body
    if body is None or not isinstance(body.get("error"), dict):
        raise SourceError(f"the API answered {answer.status} with something that is not its JSON")
    reason = _reason(body["error"])
    kind, words = _REASONS.get(reason, ("transient", f"the API answered {answer.status} ({clean(reason, 60)})"))
    raise SourceError(words, kind=kind)


def _reason(error: dict[str, Any]) -> str:
    named = [entry.get("reason") for key in ("details", "errors") for entry in _dicts(error.get(key))]
    known = [reason for reason in named if reason in _REASONS]
    return str((known or [reason for reason in named if reason] or ["unknown reason"])[0])


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
