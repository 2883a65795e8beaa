"""New videos in YouTube playlists, through the Data API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from csi.adapters import response_headers, samples
from csi.adapters.base import (
    Existence,
    Position,
    RawEvent,
    ReadResult,
    SourceSamples,
    StreamState,
    Tools,
    WatchedSource,
)
from csi.adapters.youtube import live_start, video_fields
from csi.adapters.youtube.api import (
    BATCH,
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
from csi.adapters.youtube.references import playlist_id_fault
from csi.config.durations import Seconds
from csi.config.setting_types import TierName, YouTubeId
from csi.config.source_settings import AdaptivePolling, SourceSettings, WatchSettings
from csi.errors import MalformedItem, SourceError
from csi.ingester.event import CreatorSignalEvent
from csi.logs import log

MAX_PAGES = 200
"""Twice the 5,000 items that YouTube allows in a playlist: beyond that the server sends page tokens without end."""

ENDLESS_REST = 86_400.0
"""Each try of a list without end costs units."""

MARK = "api"
ASK_TITLE_AGAIN = 86_400.0


class PlaylistWatch(WatchSettings):
    """One playlist."""

    id: YouTubeId

    @property
    def ref_fault(self) -> str | None:
        return playlist_id_fault(self.id)

    @property
    def ref(self) -> str:
        return self.id


class PlaylistSettings(ApiSettings):
    """sources.youtube_playlist"""

    watch_key: ClassVar[str | None] = "playlists"

    poll_interval_seconds: Seconds = 30
    priority: TierName = "urgent"
    adaptive_polling: AdaptivePolling = AdaptivePolling()
    enrich: bool = Field(True, description="Look up length and live state of new items, if the budget has room")
    playlists: tuple[PlaylistWatch, ...] = ()


@dataclass(frozen=True)
class PlaylistWalk:
    """A playlist read from its first page to its last."""

    items: tuple[dict[str, Any], ...]
    pages: int
    etag: str | None
    stable: bool
    """No sign that the list changed during the walk. An item that moved from an unread page to a read one is found by
    the next walk: items are remembered by key, not by position."""


class YouTubePlaylistAdapter(WatchedSource):
    """`playlistItems.list`, read to its last page."""

    name = "youtube_playlist"
    key_stems = ("youtube:video:", "youtube:malformed:", "youtube:live:")
    Settings = PlaylistSettings
    settings: PlaylistSettings

    @classmethod
    def samples(cls) -> SourceSamples:
        return samples.youtube_playlist()

    def __init__(self, config: Mapping[str, Any] | SourceSettings, tools: Tools | None = None) -> None:
        super().__init__(config, tools)
        self.api = DataApi(self.settings, self.tools)
        self._enricher = Enricher(self.api, self.tools)

    def read(self, position: Position) -> ReadResult:
        """Every readable item of one playlist."""
        if video_fields.valid_id(position.ref) is None:
            raise SourceError("this is not the id of a playlist", kind="bug")
        walk = self._walk(position)
        if walk is not None and not walk.stable and position.last_success_at is None:
            # A first read decides which items are old: one that it missed would be emitted as new by the next read.
            walk = self._walk(position)
        if walk is None:
            return ReadResult(etag=position.etag, unchanged=True)
        foreign = sum(part_of(item, "snippet").get("playlistId", position.ref) != position.ref for item in walk.items)
        if foreign:
            log.warning("items name another playlist; the watched one counts", playlist=position.ref, items=foreign)
        items = tuple(
            RawEvent(self.name, "video_added_to_playlist", item, str(part_of(item, "snippet").get("publishedAt", "")))
            for item in (_of_watch(item, position.ref) for item in walk.items if is_readable(item))
        )
        if self.settings.enrich:
            items = self._enricher.enrich(items, position, self.item_key, lambda raw: _ids(raw.payload)[0])
        title, state = self._title(position)
        # A stream starts and ends without a change of the list, so the next read must not be conditional.
        has_stream = any((details := details_of(raw)) and details.live for raw in items)
        return ReadResult(
            items=items,
            etag=None if has_stream else response_headers.stored_validator(walk.etag, MARK, self.tools.now()),
            unreadable=len(walk.items) - len(items),
            pages=walk.pages,
            title=title,
            state=state,
        )

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        """`occurred_at` is the time when the video was added to the list, not that of its publication."""
        if raw.event_type == live_start.LIVE_STARTED:
            return live_start.started_event(raw)
        item, snippet = raw.payload, part_of(raw.payload, "snippet")
        video, playlist = _ids(item)
        added_at = video_fields.timestamp(raw.occurred_at or snippet.get("publishedAt"), "snippet.publishedAt")
        return video_fields.event(
            raw,
            event_id=f"src:yt:playlist:{video}:{playlist}:{video_fields.epoch(added_at)}",
            key=self.known_key(playlist, video),
            occurred_at=added_at,
            subject=_subject(raw, video, playlist, added_at),
            metadata={"source_adapter": "youtube_playlist_api_v1", "source_ref": playlist},
        )

    def item_key(self, raw: RawEvent) -> str:
        """One key for a video in a list, however often it is listed, removed or added again. # decision 0012

        An item that cannot become an event has a key of its own: a later, complete item of the video is then new.
        """
        if raw.event_type == live_start.LIVE_STARTED:
            return live_start.started_key(raw)
        video, playlist = _ids(raw.payload)
        try:
            added_at = video_fields.timestamp(raw.occurred_at, "snippet.publishedAt")
            _subject(raw, video, playlist, added_at)
        except MalformedItem:
            return f"youtube:malformed:{video}:{playlist}"
        return self.known_key(playlist, video)

    def known_key(self, ref: str, item_id: str) -> str:
        return f"youtube:video:{item_id}:{ref}"

    def shared_key(self, key: str) -> str | None:
        return video_fields.shared_key(key) if self.settings.dedupe_across == "video" else None

    def host(self, ref: str, via: str = "feed") -> str:
        return self.api.host

    def lacks(self) -> str | None:
        return self.api.lacks

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
        return self.api.icons("playlists", refs)

    def confirm(self, ref: str) -> Existence:
        return self.api.exists("playlists", ref)

    def count_items(self, ref: str, via: str) -> int | None:
        """For one unit, without reading the list. The API sometimes omits lists that exist."""
        rows = [row for row in self.api.rows("playlists", "contentDetails", [ref]) if row.get("id") == ref]
        count = part_of(rows[0], "contentDetails").get("itemCount") if rows else None
        return count if isinstance(count, int) else None

    def _title(self, position: Position) -> tuple[str | None, dict[str, Any]]:
        """The list's title, for one unit, when the watch has no name yet; and the state that remembers a question
        in vain: it is repeated after ASK_TITLE_AGAIN."""
        state, now = dict(position.state), self.tools.now()
        asked = state.get("title_asked_at")
        is_due = not isinstance(asked, int | float) or now - asked >= ASK_TITLE_AGAIN
        if not position.wants_title or not is_due or not self.tools.spare(1):
            return None, state
        try:
            rows = list(self.api.rows("playlists", "snippet", [position.ref]))
        except SourceError as error:
            log.info("title of the playlist is not looked up", watch=position.ref, error=str(error), kind=error.kind)
            rows = []
        titles = [part_of(row, "snippet").get("title") for row in rows if row.get("id") == position.ref]
        if titles and isinstance(titles[0], str):
            return titles[0], state
        return None, state | {"title_asked_at": now}

    def _walk(self, position: Position) -> PlaylistWalk | None:
        """None: unchanged. Only lists of one page have an etag: an unchanged first page says nothing about the rest."""
        known = response_headers.validator_to_send(position.etag, MARK, self.tools.now())
        page = self.api.items(position.ref, etag=known)
        if page is None:
            return None
        pages, tokens = [page], set[str]()
        while page.next:  # a page of fewer than 50 items need not be the last; only a missing token ends the walk
            if page.next in tokens or len(pages) >= _most_pages(pages[0]):
                raise SourceError("the playlist has no end", kind="malformed", retry_after=ENDLESS_REST)
            tokens.add(page.next)
            position.progress()
            page = self.api.items(position.ref, page.next) or ApiPage(())
            pages.append(page)
        items = tuple(item for page in pages for item in page.items)
        ids = [item["id"] for item in items if isinstance(item.get("id"), str)]
        totals = {page.total for page in pages if page.total is not None}
        stable = len(totals) <= 1 and len(set(ids)) == len(ids)
        return PlaylistWalk(items, len(pages), pages[0].etag if len(pages) == 1 else None, stable)


def _most_pages(first: ApiPage) -> int:
    """Twice as many as the length that the first page states, because pages may be short: an endless list costs a few
    units a read instead of 200."""
    return MAX_PAGES if first.total is None else min(MAX_PAGES, 4 + 2 * first.total // BATCH)


def _of_watch(item: ApiItem, ref: str) -> ApiItem:
    """The watched playlist counts, whatever playlist the item names."""
    snippet = part_of(item, "snippet")
    return item if snippet.get("playlistId") == ref else item | {"snippet": snippet | {"playlistId": ref}}


def _subject(raw: RawEvent, video: str, playlist: str, added_at: str) -> dict[str, Any]:
    item, extra = raw.payload, details_of(raw)
    snippet, details = part_of(item, "snippet"), part_of(item, "contentDetails")
    owner = video_fields.valid_id(snippet.get("channelId"))  # of the list; the video's is videoOwnerChannelId
    subject = video_fields.subject(
        video,
        video_fields.valid_id(snippet.get("videoOwnerChannelId")) or owner,
        title=snippet.get("title"),
        # Without contentDetails the time when the video was added is the best known time of its publication.
        published_at=video_fields.timestamp(details.get("videoPublishedAt") or added_at, "videoPublishedAt"),
        description=snippet.get("description"),
        thumbnail=thumbnail_of(item),
        kind=(extra.live if extra else None) or "video",
        duration=extra.duration if extra else None,
        # Of the video's channel; without videoOwner* it is that of the list's owner, like channel_id.
        channel_title=snippet.get("videoOwnerChannelTitle") or snippet.get("channelTitle"),
    )
    subject["playlist_id"] = playlist
    if isinstance(snippet.get("position"), int):
        subject["playlist_position"] = snippet["position"]
    if owner is not None:
        subject["playlist_owner_channel_id"] = owner
    return subject


def _ids(item: dict[str, Any]) -> tuple[str, str]:
    playlist = video_fields.valid_id(part_of(item, "snippet").get("playlistId") or item.get("playlist_id"))
    if playlist is None:
        raise MalformedItem("the item names no playlist")
    return video_fields.video_id(video_of(item)), playlist
