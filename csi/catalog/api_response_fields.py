"""Convert a Data API response into the facts of a channel or video. Pure; unusable fields become None."""

import re
from typing import Any

from csi import clock
from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api import ApiItem, part_of, video_of
from csi.config.durations import duration_seconds
from csi.ingester.text import MAX_INTEGER, TEXT_CHARS, TITLE_CHARS, clean
from csi.store.catalog.channels import ChannelFacts
from csi.store.catalog.videos import VideoCounts, VideoFacts

MAX_TAGS = 100
# The values of the API's documentation; the database accepts no others.
DEFINITIONS = ("hd", "sd")
PRIVACY = ("public", "unlisted", "private")
UPLOADS = ("uploaded", "processed", "failed", "rejected", "deleted")
_WEB = re.compile(r"https?://[^\s\"'<>]{1,2000}")
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)


def channel_facts(row: ApiItem) -> ChannelFacts | None:
    """None when the row has no channel id."""
    ref, snippet, numbers = video_fields.valid_id(row.get("id")), part_of(row, "snippet"), part_of(row, "statistics")
    if ref is None:
        return None
    hidden = numbers.get("hiddenSubscriberCount") is True
    lists = part_of(part_of(row, "contentDetails"), "relatedPlaylists")
    return ChannelFacts(
        id=ref,
        title=_text(snippet.get("title"), TITLE_CHARS) or "",
        description=_text(snippet.get("description")),
        custom_url=_text(snippet.get("customUrl"), TITLE_CHARS),
        subscriber_count=None if hidden else count(numbers.get("subscriberCount")),
        video_count=count(numbers.get("videoCount")),
        view_count=count(numbers.get("viewCount")),
        thumbnail_url=_thumbnail(snippet),
        uploads_playlist_id=video_fields.valid_id(lists.get("uploads")),
        country=_text(snippet.get("country"), 8),
        created_at=_moment(snippet.get("publishedAt")),
    )


def video_facts(row: ApiItem) -> VideoFacts | None:
    """None when the row lacks the video id, the channel id or the publication time."""
    snippet, details = part_of(row, "snippet"), part_of(row, "contentDetails")
    numbers, status = part_of(row, "statistics"), part_of(row, "status")
    ref, channel = video_fields.valid_id(row.get("id")), video_fields.valid_id(snippet.get("channelId"))
    published = _moment(snippet.get("publishedAt"))
    if ref is None or channel is None or published is None:
        return None
    tags, caption = snippet.get("tags"), details.get("caption")
    words = tags[:MAX_TAGS] if isinstance(tags, list) else []
    return VideoFacts(
        id=ref,
        channel_id=channel,
        title=_text(snippet.get("title"), TITLE_CHARS) or "",
        published_at=published,
        description=_text(snippet.get("description")),
        duration=duration_seconds(details.get("duration")),
        view_count=count(numbers.get("viewCount")),
        like_count=count(numbers.get("likeCount")),
        comment_count=count(numbers.get("commentCount")),
        thumbnail_url=_thumbnail(snippet),
        category_id=_text(snippet.get("categoryId"), 16),
        tags=tuple(text for word in words if (text := _text(word, TITLE_CHARS))),
        language=_text(snippet.get("defaultAudioLanguage") or snippet.get("defaultLanguage"), 32),
        # The API sends `caption` as the text "true" or "false".
        caption_available=caption if isinstance(caption, bool) else {"true": True, "false": False}.get(str(caption)),
        definition=_one_of(DEFINITIONS, details.get("definition")),
        privacy_status=_one_of(PRIVACY, status.get("privacyStatus")),
        upload_status=_one_of(UPLOADS, status.get("uploadStatus")),
    )


def video_counts(row: ApiItem) -> VideoCounts | None:
    """A row of `videos:batchGetStats`. None when it lacks the id or the statistics."""
    ref, numbers, details = (
        video_fields.valid_id(row.get("id")),
        part_of(row, "statistics"),
        part_of(row, "contentDetails"),
    )
    if ref is None or not numbers:
        return None
    milliseconds = count(details.get("durationMillis"))
    return VideoCounts(
        id=ref,
        view_count=count(numbers.get("viewCount")),
        like_count=count(numbers.get("likeCount")),
        comment_count=count(numbers.get("commentCount")),
        duration=duration_seconds(details.get("duration")) or (milliseconds or 0) // 1000 or None,
    )


def listed_video(item: ApiItem, channel_id: str) -> VideoFacts | None:
    """The facts that an uploads list contains. None when it lacks the id or the publication time."""
    snippet = part_of(item, "snippet")
    ref = video_fields.valid_id(video_of(item))
    published = _moment(part_of(item, "contentDetails").get("videoPublishedAt"))
    if ref is None or published is None:
        return None
    return VideoFacts(
        id=ref,
        channel_id=channel_id,
        title=_text(snippet.get("title"), TITLE_CHARS) or "",
        published_at=published,
        description=_text(snippet.get("description")),
        thumbnail_url=_thumbnail(snippet),
        privacy_status=_one_of(PRIVACY, part_of(item, "status").get("privacyStatus")),
    )


def count(value: Any) -> int | None:
    """The API sends numbers as text. An absent, hidden or invalid number is None, never 0."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= MAX_INTEGER else None
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else None
    return number if number is None or number <= MAX_INTEGER else None


def _text(value: Any, limit: int = TEXT_CHARS) -> str | None:
    return clean(value, limit) or None if isinstance(value, str) else None


def _one_of(values: tuple[str, ...], value: Any) -> str | None:
    return value if value in values else None


def _thumbnail(snippet: ApiItem) -> str | None:
    """The URL of the largest thumbnail."""
    sizes = [size for size in part_of(snippet, "thumbnails").values() if isinstance(size, dict)]
    urls = [(count(size.get("width")) or 0, size.get("url")) for size in sizes]
    good = [(width, url) for width, url in urls if isinstance(url, str) and _WEB.fullmatch(url)]
    return max(good)[1] if good else None


def _moment(value: Any) -> float | None:
    try:
        moment = clock.parse(value) if isinstance(value, str) else -1.0
    except (ValueError, OverflowError):
        return None
    return moment if moment >= 0 else None
