"""A playlist source that reads Python lists instead of HTTP, and keeps ledger S of what it served."""

from collections import defaultdict
from typing import Any

from csi import clock
from csi.adapters.base import Position, RawEvent, ReadResult
from csi.adapters.youtube_playlist import YouTubePlaylistAdapter
from csi.errors import SourceError

OWNER = "UC" + "o" * 22


def list_id(number: int) -> str:
    return f"PL{number:032d}"


class InMemoryPlaylists(YouTubePlaylistAdapter):
    """The real playlist adapter, except that `read` takes from a list. Only the newest `window` items are listed."""

    window: int | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.items: dict[str, list[RawEvent]] = defaultdict(list)
        self.served: set[str] = set()
        self.reads = 0
        self.away = False
        self._count = 0

    def put(self, ref: str, at: float, title: str = "A video", **snippet: Any) -> str:
        """Append an item to the list; return its dedupe key."""
        self._count += 1
        video = f"v{self._count:010d}"
        item = {
            "snippet": {
                "title": title,
                "publishedAt": clock.iso(at),
                "playlistId": ref,
                "channelId": OWNER,
                "videoOwnerChannelId": OWNER,
                "resourceId": {"kind": "youtube#video", "videoId": video},
                **snippet,
            },
            "contentDetails": {"videoId": video, "videoPublishedAt": clock.iso(at)},
        }
        self.items[ref].append(RawEvent(self.name, "playlist_item_added", item, clock.iso(at)))
        return f"youtube:video:{video}:{ref}"

    def read(self, position: Position) -> ReadResult:
        self.reads += 1
        if self.away:
            raise SourceError("the source does not answer")
        shown = self.items[position.ref][-self.window :] if self.window else self.items[position.ref]
        self.served |= {self.item_key(raw) for raw in shown}
        return ReadResult(items=tuple(shown))
