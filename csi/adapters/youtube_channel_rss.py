"""New uploads of YouTube channels, from the Atom feed, the uploads playlist, or both."""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from csi.adapters import response_headers, samples
from csi.adapters.base import (
    Existence,
    Position,
    PushContent,
    PushTopic,
    RawEvent,
    ReadResult,
    SourceSamples,
    StreamState,
    Tools,
    Via,
    WatchedSource,
)
from csi.adapters.youtube import atom, channel_uploads, feed_guard, live_start, push_document, take_off, video_fields
from csi.adapters.youtube.api import ApiPage, ApiSettings, DataApi
from csi.adapters.youtube.channel_uploads import UploadsPlaylist, upload_of
from csi.adapters.youtube.enrich import Enricher
from csi.adapters.youtube.references import channel_id_fault
from csi.config.durations import Seconds
from csi.config.setting_types import SourceUrl, TierName, YouTubeId
from csi.config.source_settings import PushSettings, SourceSettings, WatchSettings
from csi.errors import NetError, SourceError
from csi.exclusive_section import POLL_SECTION
from csi.ingester.event import CreatorSignalEvent
from csi.logs import log
from csi.net import HttpLimits, HttpResponse, is_loopback

HUB = "https://pubsubhubbub.appspot.com/subscribe"
FEED_LIMITS = HttpLimits(total=20.0, max_body=feed_guard.MAX_BYTES)
FEED, BODY = "feed", "body"
"""Marks of the validator that a watch stores: the feed's ETag, or a digest of the last body. YouTube's own feeds have
no ETag, and its caches serve the same bytes for 15 minutes, which need not be parsed again. # decision 0014"""

HOUR = 3600.0
REPLACE_FEED_AFTER = 900.0
"""`via: both`: a feed that fails is replaced by the API after this long without a successful read."""

_KINDS = {404: "missing", 410: "missing", 401: "denied", 403: "denied", 429: "throttled", 503: "throttled"}
_LATER = frozenset({"transient", "throttled", "paused", "malformed", "quota", "budget"})
"""Failures after which the same call may succeed later."""


class ChannelWatch(WatchSettings):
    """One channel."""

    channel_id: YouTubeId
    creator_name: str | None = Field(None, max_length=200, description="The name, if `name` is not set")
    via: Via | None = Field(None, description="Overrides the source's via")

    @property
    def ref(self) -> str:
        return self.channel_id

    @property
    def ref_fault(self) -> str | None:
        return channel_id_fault(self.channel_id)

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
        description="URL of the feed, with {channel_id}",
    )
    respect_cache_headers: bool = Field(False, description="Poll when the feed's cached response expires")
    via: Via = Field("feed", description="Read the feed (free), the API (a unit per poll), or both")
    enrich: bool = Field(False, description="Look up length and live state of new items, if the budget has room")
    push: PushSettings | None = Field(None, description="Subscribe to changes of these channels at a WebSub hub")
    watchlist: tuple[ChannelWatch, ...] = ()

    @field_validator("feed_url_template")
    @classmethod
    def _names_the_channel(cls, value: str) -> str:
        if "{channel_id}" not in value:
            raise ValueError("expected {channel_id} in it")
        return value


class YouTubeChannelRSSAdapter(WatchedSource):
    """The newest uploads of a channel: 15 by the feed, 50 by the API."""

    name = channel_uploads.SOURCE
    key_stems = ("youtube:video:", "youtube:malformed:", "youtube:live:")
    lists_the_past = True
    newest_first = True
    Settings = ChannelSettings
    settings: ChannelSettings

    @classmethod
    def samples(cls) -> SourceSamples:
        return samples.youtube_channel_rss()

    def __init__(self, config: Mapping[str, Any] | SourceSettings, tools: Tools | None = None) -> None:
        super().__init__(config, tools)
        # A simulated feed on this machine without a simulated API: the key must not be sent to the real API.
        is_simulated = is_loopback(urlsplit(self.settings.feed_url_template).hostname or "")
        enabled = not is_simulated or "api_base_url" in self.settings.model_fields_set
        self.api = DataApi(self.settings, self.tools, enabled=enabled)
        self._uploads = UploadsPlaylist(self.api, self.tools)
        self._enricher = Enricher(self.api, self.tools)

    def read(self, position: Position) -> ReadResult:
        if video_fields.valid_id(position.ref) is None:
            raise SourceError("this is not the id of a channel", kind="bug")
        announced = position.is_announced and self.api.usable and position.via == "feed"
        match "both" if announced else position.via:
            case "api":
                result = self._uploads.read_newest(position)
            case "both":
                result = self._read_both(position)
            case _:
                result = self._read_feed(position)
        result = replace(result, title=channel_uploads.channel_title(result.items, position.ref))
        if self.settings.enrich and result.items:
            items = self._enricher.enrich(result.items, position, self.item_key, lambda raw: upload_of(raw).video)
            result = replace(result, items=items)
        if any(map(channel_uploads.is_stream, result.items)):
            # A stream starts and ends without a change of the response, so the next read must not be conditional.
            result = replace(result, etag=response_headers.without_value(result.etag), last_modified=None)
        return result

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        if raw.event_type == push_document.VIDEO_REMOVED:
            return push_document.removed_event(raw)
        if raw.event_type == live_start.LIVE_STARTED:
            return live_start.started_event(raw)
        if raw.event_type == take_off.VIDEO_TAKING_OFF:
            return take_off.event(raw)
        upload = upload_of(raw)
        subject = channel_uploads.subject_of(raw, upload)
        published_at = subject["published_at"]
        return video_fields.event(
            raw,
            event_id=f"src:yt:rss:{upload.video}:{video_fields.epoch(published_at)}",
            key=channel_uploads.video_key(upload.video),
            occurred_at=published_at,
            subject=subject,
            metadata={"source_adapter": "youtube_channel_rss_v1", "source_ref": channel_uploads.watched_channel(raw)},
        )

    def item_key(self, raw: RawEvent) -> str:
        if raw.event_type == push_document.VIDEO_REMOVED:
            return self.normalize(raw).dedupe_key
        if raw.event_type == live_start.LIVE_STARTED:
            return live_start.started_key(raw)
        if raw.event_type == take_off.VIDEO_TAKING_OFF:
            return take_off.key(raw)
        return channel_uploads.dedupe_key(raw)

    def known_key(self, ref: str, item_id: str) -> str:
        return channel_uploads.video_key(item_id)

    def shared_key(self, key: str) -> str | None:
        return video_fields.shared_key(key) if self.settings.dedupe_across == "video" else None

    def via_of(self, watch: WatchSettings) -> Via:
        own = watch.via if isinstance(watch, ChannelWatch) else None
        return own or self.settings.via

    def host(self, ref: str, via: str = "feed") -> str:
        return self.api.host if via == "api" else urlsplit(self.settings.feed_url_template).netloc

    def lacks(self) -> str | None:
        return self.api.lacks

    def feed_url(self, ref: str) -> str:
        return self.settings.feed_url_template.replace("{channel_id}", ref)

    def awaited_stream(self, event: CreatorSignalEvent) -> str | None:
        return live_start.awaited_video(event) if self.settings.live_started and self.settings.enrich else None

    def stream_states(self, videos: Sequence[str]) -> Mapping[str, StreamState]:
        return self.api.stream_states(videos)

    def started_item(self, subject: Mapping[str, Any], started_at: float) -> RawEvent:
        return live_start.started_item(dict(subject), self.name, started_at)

    @property
    def finds_icons(self) -> bool:
        return self.api.usable

    def find_icons(self, refs: Sequence[str]) -> Mapping[str, str]:
        return self.api.icons("channels", refs)

    def confirm(self, ref: str) -> Existence:
        return self.api.exists("channels", ref)

    def push_topic(self, ref: str, state: Mapping[str, Any]) -> PushTopic | None:
        if self.settings.push is None or video_fields.valid_id(ref) is None:
            return None
        return PushTopic(self.settings.push.hub_url or HUB, self.feed_url(ref))

    def read_push(self, ref: str, body: bytes, now: float) -> PushContent:
        return push_document.read(body, now)

    def fill_gap(self, position: Position, since: float | None) -> ReadResult | None:
        if not self.api.usable or not position.ref.startswith("UC"):
            return None
        try:
            return self._uploads.walk_back(position, since if since is not None else position.last_success_at)
        except SourceError as error:
            log.warning("gap is not filled", watch=position.ref, error=str(error), kind=error.kind)
            if error.kind in _LATER:
                raise
            return None

    def _read_feed(self, position: Position) -> ReadResult:
        answer, now = self._get_feed(position), self.tools.now()
        fresh = response_headers.fresh_until(answer, now)
        digest = hashlib.blake2b(answer.body, digest_size=16).hexdigest()
        if answer.status == 304 or response_headers.validator_to_send(position.etag, BODY, now) == digest:
            return ReadResult(
                etag=position.etag, last_modified=position.last_modified, unchanged=True, fresh_until=fresh
            )
        with POLL_SECTION:  # parsing is CPU-bound: one thread at a time
            entries = atom.read_entries(answer.body)
            items = tuple(channel_uploads.from_feed(entry, position.ref, now) for entry in entries)
        tag, modified = (response_headers.validator(answer, name) for name in ("etag", "last-modified"))
        value, mark = (tag, FEED) if tag else (digest, BODY)
        return ReadResult(
            items=items,
            etag=response_headers.stored_validator(value, mark, now),
            last_modified=response_headers.stored_validator(modified, FEED, now),
            fresh_until=fresh,
            window_full=len(entries) >= atom.WINDOW,
        )

    def _get_feed(self, position: Position) -> HttpResponse:
        now = self.tools.now()
        conditions = {
            "If-None-Match": response_headers.validator_to_send(position.etag, FEED, now),
            "If-Modified-Since": response_headers.validator_to_send(position.last_modified, FEED, now),
        }
        headers = {name: value for name, value in conditions.items() if value}
        try:
            answer = self.tools.net.get(self.feed_url(position.ref), headers=headers, limits=FEED_LIMITS)
        except NetError as error:
            raise response_headers.unreachable(error, "the feed could not be read") from error
        if answer.status == 304 and not headers:
            raise SourceError("the feed answered 304 to a request without conditions", kind="malformed")
        if answer.status not in (200, 304):
            kind, wait = _KINDS.get(answer.status, "transient"), response_headers.retry_after(answer, now)
            raise SourceError(f"the feed answered {answer.status}", kind=kind, retry_after=wait)
        return answer

    def _read_both(self, position: Position) -> ReadResult:
        """The feed at each poll, and the API's first page once an hour, or in place of a feed that fails."""
        try:
            result = self._read_feed(position)
        except SourceError as error:
            last = position.last_success_at
            waited = last is None or position.is_announced or self.tools.now() - last >= REPLACE_FEED_AFTER
            if not waited or not self.api.usable or not self.tools.spare(1):
                raise
            try:
                page = self._uploads.first_page(position)
            except SourceError:
                raise error from None
            log.info("feed is replaced by the API", watch=position.ref, error=str(error), kind=error.kind)
            unread = ReadResult(etag=position.etag, last_modified=position.last_modified, host=self.api.host)
            return self._add_uploads(unread, page, position)
        if not self._is_hourly_read(position) or not self.api.usable or not self.tools.spare(1):
            return result
        try:
            page = self._uploads.first_page(position)
        except SourceError as error:
            log.info("uploads list is not read", watch=position.ref, error=str(error), kind=error.kind)
            return result
        return self._add_uploads(result, page, position)

    def _add_uploads(self, result: ReadResult, page: ApiPage | None, position: Position) -> ReadResult:
        """The feed's items and those that only the uploads playlist lists."""
        in_feed = {upload_of(raw).video for raw in result.items if channel_uploads.key_or_none(raw)}
        extra = self._uploads.recent(page, position, position.last_success_at) if page else []
        new = [raw for raw in extra if upload_of(raw).video not in in_feed]
        items = (*result.items, *self._uploads.mark_shorts(new, position))
        return replace(result, items=items, unchanged=False, window_full=result.window_full and not new)

    def _is_hourly_read(self, position: Position) -> bool:
        """Whether this is the first read of the watch's hour, or confirms a push. The hours of the watches begin at
        different minutes, so that the API calls are spread over the hour."""
        if position.last_success_at is None or position.is_announced:
            return True
        shift = zlib.crc32(position.ref.encode()) % HOUR
        return (self.tools.now() + shift) // HOUR != (position.last_success_at + shift) // HOUR
