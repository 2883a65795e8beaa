"""One upload of a channel, from an entry of its feed or an item of its uploads playlist: key and subject. Pure.

An upload has the same dedupe key and event_id whichever of the two listed it, so it becomes one event.
"""

from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.adapters.base import RawEvent
from csi.adapters.youtube import atom, video_fields
from csi.adapters.youtube.api import ApiItem, part_of, thumbnail_of, video_of
from csi.adapters.youtube.enrich import details_of
from csi.errors import MalformedItem
from csi.ingester.text import TEXT_CHARS

SOURCE = "youtube_channel_rss"
SETTLED_SECONDS = 3600.0
"""Below this age zero views are no sign of an upcoming stream: a new video has none at first, either."""


@dataclass(frozen=True)
class ChannelUpload:
    """The fields that a feed entry and a playlist item have in common."""

    video: str
    channel: str | None
    title: Any
    published: Any
    description: Any
    thumbnail: Any
    kind: str


def from_feed(entry: atom.FeedEntry, channel: str, now: float) -> RawEvent:
    """The item for an entry of the feed of `channel`."""
    capped = {name: text[:TEXT_CHARS] for name, text in entry.items()}
    if _is_upcoming(capped, now):
        capped["kind"] = "upcoming"
    payload = {"entry": capped, "channel_id": channel}
    return RawEvent(SOURCE, "channel_new_upload", payload, capped.get("published", ""))


def from_playlist(item: ApiItem, channel: str) -> RawEvent:
    """The item for an item of the uploads playlist of `channel`."""
    published = str(part_of(item, "contentDetails").get("videoPublishedAt", ""))
    return RawEvent(SOURCE, "channel_new_upload_api", {"item": item, "channel_id": channel}, published)


def upload_of(raw: RawEvent) -> ChannelUpload:
    """The fields of an item. Raises MalformedItem when it has no video id."""
    item, entry = raw.payload.get("item"), raw.payload.get("entry")
    if isinstance(item, dict):
        snippet = part_of(item, "snippet")
        owner = video_fields.valid_id(snippet.get("videoOwnerChannelId"))
        return ChannelUpload(
            video=video_fields.video_id(video_of(item)),
            channel=owner or video_fields.valid_id(snippet.get("channelId")),
            title=snippet.get("title"),
            published=part_of(item, "contentDetails").get("videoPublishedAt"),
            description=snippet.get("description"),
            thumbnail=thumbnail_of(item),
            kind="short" if raw.payload.get("short") is True else "video",
        )
    if isinstance(entry, dict):
        short = "/shorts/" in str(entry.get("link", ""))
        return ChannelUpload(
            video=video_fields.video_id(entry.get("yt_videoid")),
            channel=video_fields.valid_id(entry.get("yt_channelid")),
            title=entry.get("title"),
            published=entry.get("published"),
            description=entry.get("summary") or entry.get("description"),
            thumbnail=entry.get("thumbnail_url"),
            kind="short" if short else "upcoming" if entry.get("kind") == "upcoming" else "video",
        )
    raise MalformedItem("the item is neither a feed entry nor one of an uploads list")


def watched_channel(raw: RawEvent) -> str | None:
    """The id of the channel or playlist whose watch listed this item."""
    return video_fields.valid_id(raw.payload.get("channel_id"))


def subject_of(raw: RawEvent, upload: ChannelUpload) -> dict[str, Any]:
    """The event's subject. Raises MalformedItem when a required field is missing."""
    watched, details, kind = watched_channel(raw), details_of(raw), upload.kind
    is_channel = watched is not None and watched.startswith("UC")
    # YouTube has written channel ids without their `UC` at times; the feed of a playlist may list several channels.
    if is_channel and upload.channel is not None and watched not in (upload.channel, f"UC{upload.channel}"):
        raise MalformedItem("the item belongs to another channel than the watched one")
    if details:  # the API knows better than the feed whether it is a stream; it does not know shorts
        kind = details.live or ("short" if kind == "short" else "video")
    return video_fields.subject(
        upload.video,
        watched if is_channel else upload.channel or watched,
        title=upload.title,
        published_at=video_fields.timestamp(raw.occurred_at or upload.published, "published"),
        description=upload.description,
        thumbnail=upload.thumbnail,
        kind=kind,
        duration=details.duration if details else None,
    )


def video_key(video: str) -> str:
    """The dedupe key of a video, the same whichever channel lists it."""
    return f"youtube:video:{video}"


def dedupe_key(raw: RawEvent) -> str:
    """The key of an item. Raises MalformedItem when it has no video id.

    An item that cannot become an event has a key of its own. The video's key stays free: a later, complete item of the
    video is then new, and so is the same video listed by the channel that owns it.
    """
    upload = upload_of(raw)
    try:
        subject_of(raw, upload)
    except MalformedItem:
        return f"youtube:malformed:{upload.video}:{watched_channel(raw)}"
    return video_key(upload.video)


def key_or_none(raw: RawEvent) -> str | None:
    try:
        return dedupe_key(raw)
    except MalformedItem:
        return None


def published_at(raw: RawEvent) -> float:
    """Infinity for an unreadable date: the item then counts as new and becomes a dead letter with its payload."""
    try:
        return clock.parse(raw.occurred_at)
    except (ValueError, OverflowError):
        return float("inf")


def is_stream(raw: RawEvent) -> bool:
    """Whether the item is a live or upcoming stream, as far as feed and API show it."""
    details = details_of(raw)
    return details.live is not None if details else part_of(raw.payload, "entry").get("kind") == "upcoming"


def _is_upcoming(entry: atom.FeedEntry, now: float) -> bool:
    """A feed does not mark upcoming streams: an entry with likes and without views, not new, is taken for one."""
    try:
        settled = now - clock.parse(entry.get("published", "")) >= SETTLED_SECONDS
    except (ValueError, OverflowError):
        return False
    return settled and entry.get("views") == "0" and entry.get("likes", "0").strip("0") != ""
