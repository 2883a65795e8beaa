"""YouTube playlists through the Data API: a video added to a list is an event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from csi.adapters import response_headers
from csi.adapters.base import Existence, Position, Probe, RawEvent, ReadResult, Tools, WatchedSource
from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api import ApiPage, ApiSettings, DataApi, is_readable, part_of, thumbnail_of, video_of
from csi.adapters.youtube.enrich import Enricher, details_of
from csi.config.durations import Seconds
from csi.config.settings import AdaptivePolling, SourceSettings, TierName, WatchSettings, YouTubeId
from csi.errors import MalformedItem, SourceError
from csi.ingester.event import CreatorSignalEvent

MAX_PAGES = 200
"""YouTube caps a playlist at 5,000 items; twice that is a server that never ends."""

FIRST_WALKS = 2
"""A first read that met a list in motion is repeated so often."""

MARK = "api"


class PlaylistWatch(WatchSettings):
    """One playlist."""

    id: YouTubeId

    @property
    def ref(self) -> str:
        return self.id


class PlaylistSettings(ApiSettings):
    """sources.youtube_playlist"""

    watch_key: ClassVar[str | None] = "playlists"

    poll_interval_seconds: Seconds = 30
    priority: TierName = "urgent"
    adaptive_polling: AdaptivePolling = AdaptivePolling()
    enrich: bool = Field(True, description="Ask for length and live state of new items, where the budget has room")
    playlists: tuple[PlaylistWatch, ...] = ()

    @property
    def adaptive(self) -> AdaptivePolling:
        return self.adaptive_polling


@dataclass(frozen=True)
class PlaylistWalk:
    """A list read from its first page to its last."""

    items: tuple[dict[str, Any], ...]
    pages: int
    etag: str | None
    stable: bool
    """Nothing showed that the list changed meanwhile. What slipped from a page not yet read to one already read is
    found by the next walk: nothing is remembered by its place."""


class YouTubePlaylistAdapter(WatchedSource):
    """`playlistItems.list`, read to its last page."""

    name = "youtube_playlist"
    key_stems = ("youtube:video:", "youtube:malformed:")
    Settings = PlaylistSettings
    settings: PlaylistSettings

    def __init__(self, config: Mapping[str, Any] | SourceSettings, tools: Tools | None = None) -> None:
        super().__init__(config, tools)
        self.api = DataApi(self.settings, self.tools)
        self._enricher = Enricher(self.api, self.tools)

    def read(self, position: Position) -> ReadResult:
        """Every readable item of one playlist. A walk that fails in the middle raises, and nothing has happened."""
        if video_fields.valid_id(position.ref) is None:
            raise SourceError("this is not the id of a playlist", kind="bug")
        walk = self._settled_walk(position)
        if walk is None:
            return ReadResult(etag=position.etag, unchanged=True)
        return self._reading(walk, position)

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        """DECISIONS 8: the video's owner, the video's publication, and the moment it was added."""
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
        """One key for all places of a video in a list, and for all times that it is added (DECISIONS: removed and added
        again is not new). What cannot be an event today has a key of its own, and is new when it can."""
        video, playlist = _ids(raw.payload)
        try:
            added_at = video_fields.timestamp(raw.occurred_at, "snippet.publishedAt")
            _subject(raw, video, playlist, added_at)
        except MalformedItem:
            return f"youtube:malformed:{video}:{playlist}"
        return self.known_key(playlist, video)

    def known_key(self, ref: str, item_id: str) -> str:
        return f"youtube:video:{item_id}:{ref}"

    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        return event.dedupe_key

    def host(self, ref: str, via: str = "feed") -> str:
        return self.api.host

    def lacks(self) -> str | None:
        return self.api.lacks

    def confirm(self, ref: str) -> Existence:
        return self.api.exists("playlists", ref)

    def probe(self, refs: Sequence[str]) -> dict[str, Probe]:
        """Item counts, 50 lists to a unit. A swap keeps the count and some ids drop out at times (FACTS 1.2): a slow
        full walk belongs beside it."""
        rows = self.api.rows("playlists", "contentDetails", refs)
        found = {row.get("id"): (part_of(row, "contentDetails").get("itemCount"), row.get("etag")) for row in rows}
        return {
            ref: Probe(count, tag if isinstance(tag, str) else "")
            for ref, (count, tag) in found.items()
            if isinstance(ref, str) and isinstance(count, int)
        }

    def _settled_walk(self, position: Position) -> PlaylistWalk | None:
        """A first read decides what is old. An item that it missed because the list moved would be taken for new."""
        walk = self._walk(position)
        for _ in range(FIRST_WALKS - 1):
            if walk is None or walk.stable or position.last_success_at is not None:
                break
            walk = self._walk(position)
        return walk

    def _walk(self, position: Position) -> PlaylistWalk | None:
        """None: unchanged. Only a list of one page can say so: behind an unchanged first page the others may differ."""
        known = response_headers.kept(position.etag, MARK, self.tools.now())
        page = self.api.items(position.ref, etag=known)
        if page is None:
            return None
        pages, tokens = [page], set[str]()
        while page.next:  # a short page is not the last one; only a missing token ends the walk
            if page.next in tokens or len(pages) >= MAX_PAGES:
                raise SourceError("the playlist has no end", kind="malformed")
            tokens.add(page.next)
            self.tools.progress()
            page = self.api.items(position.ref, page.next) or ApiPage(())
            pages.append(page)
        return _joined(pages)

    def _reading(self, walk: PlaylistWalk, position: Position) -> ReadResult:
        readable = [self._raw(item) for item in walk.items if is_readable(item)]
        items = tuple(readable)
        if self.settings.enrich:
            items = self._enricher.enrich(readable, position, self.item_key, lambda raw: _ids(raw.payload)[0])
        # A stream changes its state without changing the list, so such a list is read in full.
        waiting = any((facts := details_of(raw)) and facts.live for raw in items)
        return ReadResult(
            items=items,
            etag=None if waiting else response_headers.keep(walk.etag, MARK, self.tools.now()),
            unreadable=len(walk.items) - len(items),
            pages=walk.pages,
        )

    def _raw(self, item: dict[str, Any]) -> RawEvent:
        added_at = str(part_of(item, "snippet").get("publishedAt", ""))
        return RawEvent(self.name, "video_added_to_playlist", item, added_at)


def _joined(pages: list[ApiPage]) -> PlaylistWalk:
    items = tuple(item for page in pages for item in page.items)
    ids = [item["id"] for item in items if isinstance(item.get("id"), str)]
    totals = {page.total for page in pages if page.total is not None}
    stable = len(totals) <= 1 and len(set(ids)) == len(ids)
    return PlaylistWalk(items, len(pages), pages[0].etag if len(pages) == 1 else None, stable)


def _subject(raw: RawEvent, video: str, playlist: str, added_at: str) -> dict[str, Any]:
    item, facts = raw.payload, details_of(raw)
    snippet, details = part_of(item, "snippet"), part_of(item, "contentDetails")
    owner = video_fields.valid_id(snippet.get("channelId"))
    subject = video_fields.subject(
        video,
        video_fields.valid_id(snippet.get("videoOwnerChannelId")) or owner,
        title=snippet.get("title"),
        # An answer without contentDetails (we ask for it) leaves the moment it was added as the best we know.
        published_at=video_fields.timestamp(details.get("videoPublishedAt") or added_at, "videoPublishedAt"),
        description=snippet.get("description"),
        thumbnail=thumbnail_of(item),
        kind=(facts.live if facts else None) or "video",
        duration=facts.duration if facts else None,
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
