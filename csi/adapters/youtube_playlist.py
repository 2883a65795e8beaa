"""YouTube playlists through the Data API: a video added to a list is an event."""

from typing import Any, ClassVar
from urllib.parse import urlencode

from pydantic import Field

from csi.adapters import youtube
from csi.adapters.base import Position, RawEvent, Reading, WatchedSource
from csi.errors import MalformedItem, NetError, SourceError
from csi.ingester.config import (
    AdaptivePolling,
    SourceSettings,
    SourceUrl,
    TierName,
    VariableName,
    WatchSettings,
    YouTubeId,
)
from csi.ingester.durations import Seconds
from csi.ingester.event import CreatorSignalEvent

PAGE_SIZE = 50
PLACEHOLDERS = ("Private video", "Deleted video")
MAX_PAGES = 200
"""YouTube caps a playlist at 5,000 items; twice that is a server that never ends."""


class PlaylistWatch(WatchSettings):
    """One playlist."""

    id: YouTubeId

    @property
    def ref(self) -> str:
        return self.id


class PlaylistSettings(SourceSettings):
    """sources.youtube_playlist"""

    watch_key: ClassVar[str | None] = "playlists"

    poll_interval_seconds: Seconds = 30
    priority: TierName = "urgent"
    adaptive_polling: AdaptivePolling = AdaptivePolling()
    quota_limit: int = Field(10_000, gt=0, description="API units a Pacific day")
    api_key_env: VariableName = Field("YOUTUBE_API_KEY", description="Variable that holds the API key")
    api_base_url: SourceUrl = Field(
        "https://www.googleapis.com/youtube/v3", description="The Data API, or a stand-in for it"
    )
    playlists: tuple[PlaylistWatch, ...] = ()

    @property
    def adaptive(self) -> AdaptivePolling:
        return self.adaptive_polling

    @property
    def budget_units(self) -> int:
        return self.quota_limit


class YouTubePlaylistAdapter(WatchedSource):
    """`playlistItems.list`, read to its last page."""

    name = "youtube_playlist"
    Settings = PlaylistSettings
    settings: PlaylistSettings

    def read(self, position: Position) -> Reading:
        """Every readable item of one playlist. A walk that fails in the middle raises, and nothing has happened."""
        items: list[dict[str, Any]] = []
        token: str | None = None
        for _ in range(MAX_PAGES):
            page = self._page(position.ref, token)
            items += [item for item in page.get("items", []) if isinstance(item, dict)]
            token = page.get("nextPageToken")
            if not token:  # a short page is not the last one; only a missing token ends the walk
                return self._reading(items)
        raise SourceError("the playlist has no end")

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        """DECISIONS 8: the video's owner, the video's publication, and the moment it was added."""
        item = raw.payload
        snippet, details = _part(item, "snippet"), _part(item, "contentDetails")
        video, playlist = _ids(item)
        added_at = youtube.timestamp(raw.occurred_at or snippet.get("publishedAt"), "snippet.publishedAt")
        owner = youtube.valid_id(snippet.get("channelId"))
        subject = youtube.subject(
            video,
            youtube.valid_id(snippet.get("videoOwnerChannelId")) or owner,
            title=snippet.get("title"),
            # An answer without contentDetails (we ask for it) leaves the moment it was added as the best we know.
            published_at=youtube.timestamp(details.get("videoPublishedAt") or added_at, "videoPublishedAt"),
            description=snippet.get("description"),
            thumbnail=_thumbnail(snippet),
        )
        subject |= {"kind": "video", "playlist_id": playlist}
        if isinstance(snippet.get("position"), int):
            subject["playlist_position"] = snippet["position"]
        if owner is not None:
            subject["playlist_owner_channel_id"] = owner
        return youtube.event(
            raw,
            event_id=f"src:yt:playlist:{video}:{playlist}:{youtube.epoch(added_at)}",
            key=self.item_key(raw),
            occurred_at=added_at,
            subject=subject,
            metadata={"source_adapter": "youtube_playlist_api_v1", "source_ref": playlist},
        )

    def item_key(self, raw: RawEvent) -> str:
        video, playlist = _ids(raw.payload)
        return f"youtube:video:{video}:{playlist}"

    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        return event.dedupe_key

    def _page(self, playlist: str, token: str | None) -> dict[str, Any]:
        query = {"part": "snippet,contentDetails,status", "playlistId": playlist, "maxResults": PAGE_SIZE}
        if token:
            query["pageToken"] = token
        url = f"{self.settings.api_base_url.rstrip('/')}/playlistItems?{urlencode(query)}"
        key = self.tools.secret(self.settings.api_key_env)
        self.tools.charge(1)
        try:
            answer = self.tools.net.get(url, headers={"X-Goog-Api-Key": key} if key else {})
        except NetError as error:
            raise SourceError(f"the API could not be read: {error}") from error
        try:
            return youtube.api_json(answer)
        except SourceError as error:
            if error.kind == "quota":
                self.tools.exhaust()
            raise

    def _reading(self, items: list[dict[str, Any]]) -> Reading:
        readable = [item for item in items if _readable(item)]
        return Reading(
            items=tuple(
                RawEvent(
                    self.name,
                    "video_added_to_playlist",
                    item,
                    str(_part(item, "snippet").get("publishedAt", "")),
                )
                for item in readable
            ),
            unreadable=len(items) - len(readable),
        )


def _part(item: dict[str, Any], name: str) -> dict[str, Any]:
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def _ids(item: dict[str, Any]) -> tuple[str, str]:
    snippet = _part(item, "snippet")
    video = _part(snippet, "resourceId").get("videoId") or _part(item, "contentDetails").get("videoId")
    playlist = youtube.valid_id(snippet.get("playlistId") or item.get("playlist_id"))
    if playlist is None:
        raise MalformedItem("the item names no playlist")
    return youtube.video_id(video), playlist


def _readable(item: dict[str, Any]) -> bool:
    """Private and deleted videos stay in the list without their date. When one becomes readable, it is new."""
    if _part(item, "status").get("privacyStatus") == "private":
        return False
    if "contentDetails" in item:
        return bool(_part(item, "contentDetails").get("videoPublishedAt"))
    return _part(item, "snippet").get("title") not in PLACEHOLDERS


def _thumbnail(snippet: dict[str, Any]) -> Any:
    sizes = _part(snippet, "thumbnails")
    chosen = sizes.get("default") or next(iter(sizes.values()), None)
    return chosen.get("url") if isinstance(chosen, dict) else None
