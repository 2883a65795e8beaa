"""YouTube channels through their Atom feed: a new upload is an event."""

from io import BytesIO
from typing import Any, ClassVar

import feedparser
from pydantic import Field, field_validator

from csi.adapters import feed_guard, youtube
from csi.adapters.base import Position, RawEvent, Reading, WatchedSource
from csi.errors import MalformedItem, NetError, SourceError
from csi.ingester.config import SourceSettings, SourceUrl, TierName, WatchSettings, YouTubeId
from csi.ingester.durations import Seconds
from csi.ingester.event import CreatorSignalEvent
from csi.net import Answer, Limits

FEED_LIMITS = Limits(total=20.0, max_body=4 * 1024 * 1024)

_ENTRY_FIELDS = ("yt_videoid", "yt_channelid", "title", "link", "published", "updated", "summary", "author")


class ChannelWatch(WatchSettings):
    """One channel."""

    channel_id: YouTubeId
    creator_name: str | None = Field(None, max_length=200)

    @property
    def ref(self) -> str:
        return self.channel_id


class ChannelSettings(SourceSettings):
    """sources.youtube_channel_rss"""

    watch_key: ClassVar[str | None] = "watchlist"

    poll_interval_seconds: Seconds = 300
    priority: TierName = "standard"
    feed_url_template: SourceUrl = Field(
        "https://www.youtube.com/feeds/videos.xml?channel_id={channel_id}",
        description="The feed's address, {channel_id} in it",
    )
    respect_cache_headers: bool = Field(False, description="Poll just after the feed's Expires")
    watchlist: tuple[ChannelWatch, ...] = ()

    @field_validator("feed_url_template")
    @classmethod
    def _names_the_channel(cls, value: str) -> str:
        if "{channel_id}" not in value:
            raise ValueError("expected {channel_id} in it")
        return value


class YouTubeChannelRSSAdapter(WatchedSource):
    """The newest 15 uploads of a channel."""

    name = "youtube_channel_rss"
    Settings = ChannelSettings
    settings: ChannelSettings

    def read(self, position: Position) -> Reading:
        answer = self._get(position)
        if answer.status == 304:
            return Reading(etag=position.etag, last_modified=position.last_modified, unchanged=True)
        return Reading(
            items=tuple(self._raw(entry, position.ref) for entry in _entries(answer.body)),
            etag=_validator(answer, "etag"),
            last_modified=_validator(answer, "last-modified"),
        )

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        """DECISIONS 16: the id from `yt:videoId`, the URL built from it, the channel from the entry or the watch."""
        entry = raw.payload.get("entry")
        if not isinstance(entry, dict):
            raise MalformedItem("the item is not a feed entry")
        video = youtube.video_id(entry.get("yt_videoid"))
        published_at = youtube.timestamp(raw.occurred_at or entry.get("published"), "published")
        watched = youtube.valid_id(raw.payload.get("channel_id"))
        subject = youtube.subject(
            video,
            youtube.valid_id(entry.get("yt_channelid")) or watched,
            title=entry.get("title"),
            published_at=published_at,
            description=entry.get("summary") or entry.get("description"),
            thumbnail=entry.get("thumbnail_url"),
        )
        subject["kind"] = "short" if "/shorts/" in str(entry.get("link", "")) else "video"
        return youtube.event(
            raw,
            event_id=f"src:yt:rss:{video}:{youtube.epoch(published_at)}",
            key=f"youtube:video:{video}",
            occurred_at=published_at,
            subject=subject,
            metadata={"source_adapter": "youtube_channel_rss_v1", "source_ref": watched},
        )

    def item_key(self, raw: RawEvent) -> str:
        return f"youtube:video:{youtube.video_id(raw.payload['entry'].get('yt_videoid'))}"

    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        return event.dedupe_key

    def _get(self, position: Position) -> Answer:
        url = self.settings.feed_url_template.replace("{channel_id}", position.ref)
        asked = {"If-None-Match": position.etag, "If-Modified-Since": position.last_modified}
        headers = {name: value for name, value in asked.items() if value}
        try:
            answer = self.tools.net.get(url, headers=headers, limits=FEED_LIMITS)
        except NetError as error:
            raise SourceError(f"the feed could not be read: {error}") from error
        if answer.status == 304 and not headers:
            raise SourceError("the feed answered 304 to a request without conditions")
        if answer.status not in (200, 304):
            raise SourceError(f"the feed answered {answer.status}", kind=_kind(answer.status))
        return answer

    def _raw(self, entry: dict[str, Any], channel: str) -> RawEvent:
        payload = {"entry": entry, "channel_id": channel}
        return RawEvent(self.name, "channel_new_upload", payload, str(entry.get("published", "")))


def _entries(body: bytes) -> list[dict[str, Any]]:
    """The entries as plain JSON values. From bytes: feedparser opens a text that names a file or a URL."""
    feed_guard.check(body)
    parsed = feedparser.parse(BytesIO(body), sanitize_html=False, resolve_relative_uris=False)
    entries = [_plain(entry) for entry in parsed.entries]
    if entries and not any("yt_videoid" in entry for entry in entries):
        raise SourceError("the answer is a feed, but not one of YouTube's: no entry has a yt:videoId")
    return entries


def _plain(entry: Any) -> dict[str, Any]:
    plain = {name: str(entry[name]) for name in _ENTRY_FIELDS if name in entry}
    thumbnails = entry.get("media_thumbnail") or [{}]
    if "url" in thumbnails[0]:
        plain["thumbnail_url"] = str(thumbnails[0]["url"])
    return plain


def _validator(answer: Answer, name: str) -> str | None:
    """A validator worth sending back: short, and printable."""
    value = answer.headers.get(name)
    return value if value and len(value) <= 256 and value.isprintable() else None


def _kind(status: int) -> str:
    return "throttled" if status in (429, 503) else "transient"
