"""YouTube channels: a new upload is an event. Read from the Atom feed, from the uploads playlist, or from both."""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from csi import clock
from csi.adapters import response_headers
from csi.adapters.base import Existence, Position, RawEvent, ReadResult, Tools, Via, WatchedSource
from csi.adapters.youtube import atom, feed_guard, video_fields
from csi.adapters.youtube.api import (
    ApiItem,
    ApiPage,
    ApiSettings,
    DataApi,
    is_readable,
    part_of,
    thumbnail_of,
    video_of,
)
from csi.adapters.youtube.enrich import Enricher, details_of
from csi.config.durations import Seconds
from csi.config.settings import SourceSettings, SourceUrl, TierName, WatchSettings, YouTubeId
from csi.errors import MalformedItem, NetError, SourceError
from csi.exclusive import READING
from csi.ingester.event import CreatorSignalEvent
from csi.ingester.text import TEXT_CHARS
from csi.logs import log
from csi.net import HttpLimits, HttpResponse, is_loopback

FEED_LIMITS = HttpLimits(total=20.0, max_body=feed_guard.MAX_BYTES)
FEED, API, BODY = "feed", "api", "body"
"""Whose validator a watch keeps: the feed's ETag, the API's, or a digest of the last answer, for YouTube's own feeds,
which have no ETag. Their caches give the same bytes for a quarter of an hour: those need not be read again."""

HOUR, DAY = 3600.0, 86_400.0
STAND_IN = 900.0
"""`via: both`: a feed that fails is replaced by the API when nothing could be read for this long."""

MAX_GAP_PAGES = 10
_KINDS = {404: "missing", 410: "missing", 401: "denied", 403: "denied", 429: "throttled", 503: "throttled"}
_PASSING = frozenset({"transient", "throttled", "paused", "malformed"})


class ChannelWatch(WatchSettings):
    """One channel."""

    channel_id: YouTubeId
    creator_name: str | None = Field(None, max_length=200, description="The name, where `name` is not set")
    via: Via | None = Field(None, description="Overrides the source's via")

    @property
    def ref(self) -> str:
        return self.channel_id

    @property
    def label(self) -> str | None:
        return self.name or self.creator_name


class ChannelSettings(ApiSettings):
    """sources.youtube_channel_rss"""

    watch_key: ClassVar[str | None] = "watchlist"

    poll_interval_seconds: Seconds = 300
    priority: TierName = "standard"
    feed_url_template: SourceUrl = Field(
        "https://www.youtube.com/feeds/videos.xml?channel_id={channel_id}",
        description="The feed's address, {channel_id} in it",
    )
    respect_cache_headers: bool = Field(False, description="Poll just after the feed's Expires")
    via: Via = Field("feed", description="Read the feed (free), the API (a unit each poll), or both")
    enrich: bool = Field(False, description="Ask for length and live state of new items, where the budget has room")
    watchlist: tuple[ChannelWatch, ...] = ()

    @property
    def waits_for_caches(self) -> bool:
        return self.respect_cache_headers

    @field_validator("feed_url_template")
    @classmethod
    def _names_the_channel(cls, value: str) -> str:
        if "{channel_id}" not in value:
            raise ValueError("expected {channel_id} in it")
        return value


@dataclass(frozen=True)
class ChannelUpload:
    """What a feed's entry and an uploads list's item both tell."""

    video: str
    channel: str | None
    title: Any
    published: Any
    description: Any
    thumbnail: Any
    kind: str


class YouTubeChannelRSSAdapter(WatchedSource):
    """The newest uploads of a channel: 15 by the feed, 50 by the API."""

    name = "youtube_channel_rss"
    key_stems = ("youtube:video:", "youtube:malformed:")
    newest_first = True
    Settings = ChannelSettings
    settings: ChannelSettings

    def __init__(self, config: Mapping[str, Any] | SourceSettings, tools: Tools | None = None) -> None:
        super().__init__(config, tools)
        self.api = DataApi(self.settings, self.tools, enabled=not _is_stand_in(self.settings))
        self._enricher = Enricher(self.api, self.tools)

    def read(self, position: Position) -> ReadResult:
        if video_fields.valid_id(position.ref) is None:
            raise SourceError("this is not the id of a channel", kind="bug")
        match position.via:
            case "api":
                reading = self._read_uploads(position)
            case "both":
                reading = self._read_both(position)
            case _:
                reading = self._read_feed(position)
        if self.settings.enrich and reading.items:
            reading = replace(reading, items=self._enricher.enrich(reading.items, position, self.item_key, _video_of))
        return _unsettled(reading) if any(map(_is_stream, reading.items)) else reading

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        """DECISIONS 16, 45: one event for one upload, whether the feed or the API told of it."""
        watched = video_fields.valid_id(raw.payload.get("channel_id"))
        upload = _upload(raw)
        subject = _subject(raw, upload, watched)
        published_at = subject["published_at"]
        return video_fields.event(
            raw,
            event_id=f"src:yt:rss:{upload.video}:{video_fields.epoch(published_at)}",
            key=self.known_key("", upload.video),
            occurred_at=published_at,
            subject=subject,
            metadata={"source_adapter": "youtube_channel_rss_v1", "source_ref": watched},
        )

    def item_key(self, raw: RawEvent) -> str:
        """What cannot be an event today has a key of its own: the video's key stays free for its real owner, or for
        the day when the entry is whole."""
        watched, upload = video_fields.valid_id(raw.payload.get("channel_id")), _upload(raw)
        try:
            _subject(raw, upload, watched)
        except MalformedItem:
            return f"youtube:malformed:{upload.video}:{watched}"
        return self.known_key("", upload.video)

    def known_key(self, ref: str, item_id: str) -> str:
        """The same in every channel: a video has one."""
        return f"youtube:video:{item_id}"

    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        return event.dedupe_key

    def via_of(self, watch: WatchSettings) -> Via:
        own = watch.via if isinstance(watch, ChannelWatch) else None
        return own or self.settings.via

    def host(self, ref: str, via: str = "feed") -> str:
        return self.api.host if via == "api" else urlsplit(self.settings.feed_url_template).netloc

    def lacks(self) -> str | None:
        return self.api.lacks

    def feed_url(self, ref: str) -> str:
        return self.settings.feed_url_template.replace("{channel_id}", ref)

    def confirm(self, ref: str) -> Existence:
        return self.api.exists("channels", ref)

    def fill_gap(self, position: Position, since: float | None) -> ReadResult | None:
        """The uploads list, newest first, to the first upload that was known by `since`, or a day before it."""
        if not self.api.usable or not _is_channel(position.ref):
            return None
        try:
            return self._walk_back(position, since if since is not None else position.last_success_at)
        except SourceError as error:
            log.warning("gap is not filled", watch=position.ref, error=str(error), kind=error.kind)
            if error.kind in _PASSING:
                raise
            return None

    # The feed

    def _read_feed(self, position: Position) -> ReadResult:
        answer, now = self._get(position), self.tools.now()
        fresh, digest = (
            response_headers.fresh_until(answer, now),
            hashlib.blake2b(answer.body, digest_size=16).hexdigest(),
        )
        if answer.status == 304 or response_headers.kept(position.etag, BODY, now) == digest:
            return ReadResult(
                etag=position.etag, last_modified=position.last_modified, unchanged=True, fresh_until=fresh
            )
        with READING:
            entries, tag = atom.read_entries(answer.body), response_headers.validator(answer, "etag")
            items = tuple(self._entry(entry, position.ref) for entry in entries)
        return ReadResult(
            items=items,
            etag=response_headers.keep(tag, FEED, now) if tag else response_headers.keep(digest, BODY, now),
            last_modified=response_headers.keep(response_headers.validator(answer, "last-modified"), FEED, now),
            fresh_until=fresh,
            window_full=len(entries) >= atom.WINDOW,
        )

    def _get(self, position: Position) -> HttpResponse:
        url, now = self.feed_url(position.ref), self.tools.now()
        asked = {
            "If-None-Match": response_headers.kept(position.etag, FEED, now),
            "If-Modified-Since": response_headers.kept(position.last_modified, FEED, now),
        }
        headers = {name: value for name, value in asked.items() if value}
        try:
            answer = self.tools.net.get(url, headers=headers, limits=FEED_LIMITS)
        except NetError as error:
            raise response_headers.unreachable(error, "the feed could not be read") from error
        if answer.status == 304 and not headers:
            raise SourceError("the feed answered 304 to a request without conditions", kind="malformed")
        if answer.status not in (200, 304):
            kind, wait = _KINDS.get(answer.status, "transient"), response_headers.retry_after(answer, now)
            raise SourceError(f"the feed answered {answer.status}", kind=kind, retry_after=wait)
        return answer

    def _entry(self, entry: atom.FeedEntry, channel: str) -> RawEvent:
        capped = {name: text[:TEXT_CHARS] for name, text in entry.items()}
        if _is_upcoming(capped, self.tools.now()):
            capped["kind"] = "upcoming"
        payload = {"entry": capped, "channel_id": channel}
        return RawEvent(self.name, "channel_new_upload", payload, capped.get("published", ""))

    # The uploads playlist

    def _read_uploads(self, position: Position) -> ReadResult:
        """The newest 50. A watch that was read by its feed before knows only 15 of them: old ones are not news."""
        now, ours = self.tools.now(), (position.etag or "").startswith(f"{API}:")
        since = None if ours else position.last_success_at
        page = self._uploads_page(position, etag=response_headers.kept(position.etag, API, now))
        if page is None:
            return ReadResult(etag=position.etag, unchanged=True)
        items = self._uploads(page.items, position, since)
        return ReadResult(
            items=self._with_shorts(items, position),
            etag=response_headers.keep(page.etag or "", API, now),
            unreadable=len(page.items) - sum(map(is_readable, page.items)),
            window_full=page.next is not None,
        )

    def _uploads_page(self, position: Position, *, etag: str | None = None) -> ApiPage | None:
        """The uploads list of a channel without videos is "not found", too; it is empty where there is the channel."""
        if not _is_channel(position.ref):
            raise SourceError("only a channel id (UC…) can be read through the API", kind="denied")
        try:
            return self.api.items(_list_of(position.ref, "UU"), etag=etag)
        except SourceError as error:
            if error.kind == "missing" and self.api.exists("channels", position.ref) == "exists":
                return ApiPage(())
            raise

    def _uploads(self, items: tuple[ApiItem, ...], position: Position, since: float | None) -> list[RawEvent]:
        """Readable items as events; with `since`, those that were published a day before it or later."""
        found = [self._item(item, position.ref) for item in items if is_readable(item)]
        return [raw for raw in found if since is None or _published(raw) >= since - DAY]

    def _item(self, item: ApiItem, channel: str) -> RawEvent:
        published = str(part_of(item, "contentDetails").get("videoPublishedAt", ""))
        return RawEvent(self.name, "channel_new_upload_api", {"item": item, "channel_id": channel}, published)

    def _with_shorts(self, items: list[RawEvent], position: Position) -> tuple[RawEvent, ...]:
        """An uploads list does not say which of its videos are shorts; its sibling UUSH does, for a unit."""
        if position.emits == 0 or not self._some_new(items, position) or not self.tools.spare(1):
            return tuple(items)
        try:
            page = self.api.items(_list_of(position.ref, "UUSH"))
        except SourceError:  # most often a channel without shorts
            return tuple(items)
        shorts = {name for item in (page.items if page else ()) if (name := video_fields.valid_id(video_of(item)))}
        return tuple(_as_short(raw) if _video_name(raw) in shorts else raw for raw in items)

    def _some_new(self, items: list[RawEvent], position: Position) -> bool:
        keys = {key for raw in items if (key := _key_of(self, raw)) is not None}
        return bool(keys - position.known(sorted(keys)))

    def _walk_back(self, position: Position, since: float | None) -> ReadResult:
        found: list[RawEvent] = []
        page, pages = self._uploads_page(position), 1
        while page is not None:
            new, reached = self._missed(page, position, since)
            found += new
            if reached or not page.next or pages >= MAX_GAP_PAGES:
                break
            self.tools.progress()
            page, pages = self.api.items(_list_of(position.ref, "UU"), page.next), pages + 1
        more = page is not None and not reached and page.next is not None
        return ReadResult(self._with_shorts(found, position), pages=pages, window_full=more)

    def _missed(self, page: ApiPage, position: Position, since: float | None) -> tuple[list[RawEvent], bool]:
        """What of this page nobody has seen, and whether the page reaches back to what was there by `since`."""
        items = [self._item(item, position.ref) for item in page.items if is_readable(item)]
        keys = [_key_of(self, raw) or "" for raw in items]
        known, new = position.known(keys), list[RawEvent]()
        for key, raw in zip(keys, items, strict=True):
            old = since is not None and _published(raw) < since
            if (key in known and (old or since is None)) or (since is not None and _published(raw) < since - DAY):
                return new, True
            if key not in known:
                new.append(raw)
        return new, False

    # Both

    def _read_both(self, position: Position) -> ReadResult:
        """The feed each time, and the API's first page once an hour, or when the feed fails for a quarter of one."""
        try:
            reading = self._read_feed(position)
        except SourceError as error:
            return self._stand_in(position, error)
        if not self._hour_is_new(position) or not self.api.usable or not self.tools.spare(1):
            return reading
        try:
            page = self._uploads_page(position)
        except SourceError as error:
            log.info("uploads list is not read", watch=position.ref, error=str(error), kind=error.kind)
            return reading
        return self._joined(reading, page, position)

    def _stand_in(self, position: Position, error: SourceError) -> ReadResult:
        last = position.last_success_at
        waited = last is None or self.tools.now() - last >= STAND_IN
        if not waited or not self.api.usable or not self.tools.spare(1):
            raise error
        try:
            page = self._uploads_page(position)
        except SourceError:
            raise error from None
        log.info("feed is replaced by the API", watch=position.ref, error=str(error), kind=error.kind)
        blank = ReadResult(etag=position.etag, last_modified=position.last_modified, host=self.api.host)
        return self._joined(blank, page, position)

    def _joined(self, reading: ReadResult, page: ApiPage | None, position: Position) -> ReadResult:
        told = {_video_of(raw) for raw in reading.items if _key_of(self, raw)}
        extra = self._uploads(page.items if page else (), position, position.last_success_at)
        new = [raw for raw in extra if _video_of(raw) not in told]
        items = (*reading.items, *self._with_shorts(new, position))
        return replace(reading, items=items, unchanged=False, window_full=reading.window_full and not new)

    def _hour_is_new(self, position: Position) -> bool:
        """Each watch has its own turn of the hour, so that they do not all ask in the same minute."""
        if position.last_success_at is None:
            return True
        shift = zlib.crc32(position.ref.encode()) % HOUR
        return (self.tools.now() + shift) // HOUR != (position.last_success_at + shift) // HOUR


def _subject(raw: RawEvent, upload: ChannelUpload, watched: str | None) -> dict[str, Any]:
    facts = details_of(raw)
    if _is_foreign(upload.channel, watched):
        raise MalformedItem("the item says that it is another channel's; it is left to its owner")
    return video_fields.subject(
        upload.video,
        watched if watched and _is_channel(watched) else upload.channel or watched,
        title=upload.title,
        published_at=video_fields.timestamp(raw.occurred_at or upload.published, "published"),
        description=upload.description,
        thumbnail=upload.thumbnail,
        kind=_kind(upload.kind, facts.live) if facts else upload.kind,
        duration=facts.duration if facts else None,
    )


def _upload(raw: RawEvent) -> ChannelUpload:
    """MalformedItem when there is no video in it."""
    item, entry = raw.payload.get("item"), raw.payload.get("entry")
    if isinstance(item, dict):
        return _from_item(item, "short" if raw.payload.get("short") is True else "video")
    if isinstance(entry, dict):
        return _from_entry(entry)
    raise MalformedItem("the item is neither a feed entry nor one of an uploads list")


def _from_entry(entry: dict[str, Any]) -> ChannelUpload:
    """DECISIONS 16: the id from `yt:videoId` only."""
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


def _from_item(item: ApiItem, kind: str) -> ChannelUpload:
    snippet = part_of(item, "snippet")
    return ChannelUpload(
        video=video_fields.video_id(video_of(item)),
        channel=video_fields.valid_id(snippet.get("videoOwnerChannelId"))
        or video_fields.valid_id(snippet.get("channelId")),
        title=snippet.get("title"),
        published=part_of(item, "contentDetails").get("videoPublishedAt"),
        description=snippet.get("description"),
        thumbnail=thumbnail_of(item),
        kind=kind,
    )


def _kind(guessed: str, live: str | None) -> str:
    """The API's word on streams is better than the feed's; on shorts it has none."""
    return live or ("short" if guessed == "short" else "video")


def _is_upcoming(entry: atom.FeedEntry, now: float) -> bool:
    """As far as a feed tells (FACTS 2): liked but never watched, and not because it is only minutes old."""
    try:
        waited = now - clock.parse(entry.get("published", "")) >= HOUR
    except (ValueError, OverflowError):
        return False
    return waited and entry.get("views") == "0" and entry.get("likes", "0").strip("0") != ""


def _is_stream(raw: RawEvent) -> bool:
    """It runs or is announced, as far as is known."""
    facts = details_of(raw)
    return (facts.live is not None) if facts else part_of(raw.payload, "entry").get("kind") == "upcoming"


def _unsettled(reading: ReadResult) -> ReadResult:
    """To be read whole the next time: what is in it may become something else while the answer stays the same."""
    whose, at, _ = f"{reading.etag or ''}::".split(":", 2)
    return replace(reading, etag=f"{whose}:{at}:" if reading.etag else None, last_modified=None)


def _is_stand_in(settings: ChannelSettings) -> bool:
    """A feed on this machine and no word about the API: its key is not for the real one."""
    local = is_loopback(urlsplit(settings.feed_url_template).hostname or "")
    return local and "api_base_url" not in settings.model_fields_set


def _is_channel(ref: str) -> bool:
    return ref.startswith("UC")


def _is_foreign(claimed: str | None, watched: str | None) -> bool:
    """An entry of another channel (FAULTS 68). Some places lost the `UC` (FACTS 2); a list's feed names no channel."""
    if claimed is None or watched is None or not _is_channel(watched):
        return False
    return watched not in (claimed, f"UC{claimed}")


def _list_of(channel: str, prefix: str) -> str:
    return prefix + channel.removeprefix("UC")


def _video_of(raw: RawEvent) -> str:
    return _upload(raw).video


def _video_name(raw: RawEvent) -> str | None:
    return video_fields.valid_id(video_of(raw.payload["item"]))


def _key_of(adapter: YouTubeChannelRSSAdapter, raw: RawEvent) -> str | None:
    try:
        return adapter.item_key(raw)
    except MalformedItem:
        return None


def _published(raw: RawEvent) -> float:
    """What has no readable date counts as new: it is kept, and becomes a dead letter with its payload."""
    try:
        return clock.parse(raw.occurred_at)
    except (ValueError, OverflowError):
        return float("inf")


def _as_short(raw: RawEvent) -> RawEvent:
    return replace(raw, payload={**raw.payload, "short": True})
