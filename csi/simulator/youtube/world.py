"""The simulated YouTube's model: channels, videos and playlists. Time is always handed in."""

import base64
import bisect
import threading
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from csi.errors import CsiError

Kind = Literal["video", "short", "live", "upcoming"]
Privacy = Literal["public", "unlisted", "private", "deleted"]

KINDS: tuple[Kind, ...] = get_args(Kind)
PRIVACIES: tuple[Privacy, ...] = get_args(Privacy)

# What the uploads list and its unofficial siblings show (FACTS §1.3).
UPLOAD_LISTS: dict[str, tuple[Kind, ...]] = {
    "UU": KINDS,
    "UULF": ("video",),
    "UUSH": ("short",),
    "UULV": ("live", "upcoming"),
}
ID_TAIL = 22  # the characters that a channel and its uploads lists share


class UnknownIdError(CsiError):
    """A channel, video or playlist that this world does not have."""


@dataclass(frozen=True)
class SimulatedChannel:
    """Somebody who uploads, or owns a playlist."""

    id: str
    title: str
    handle: str
    created_at: float
    subscribers: int
    hides_subscribers: bool = False
    subscribers_per_day: int = 0

    def subscribers_at(self, now: float) -> int:
        """From the day it was made; never below nothing."""
        return max(self.subscribers + int(self.subscribers_per_day * (now - self.created_at) / 86_400), 0)


@dataclass(frozen=True)
class SimulatedVideo:
    """One state of a video. A change makes a new object, so a copy once taken never moves."""

    id: str
    channel_id: str
    title: str
    description: str
    kind: Kind
    privacy: Privacy
    published_at: float
    updated_at: float
    duration: int
    views: int
    views_per_hour: int
    serial: int
    ever_public: bool
    hides_likes: bool = False
    comments_off: bool = False
    scheduled_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def readable(self) -> bool:
        """An API key and a stranger can see it, if only by its link."""
        return self.privacy in ("public", "unlisted")

    def views_at(self, now: float) -> int:
        """Views only grow; an upcoming stream has none yet."""
        if self.kind == "upcoming":
            return 0
        return self.views + int(self.views_per_hour * max(0.0, now - self.published_at) / 3600)


@dataclass(frozen=True)
class SimulatedPlaylist:
    """A list somebody made by hand. What is in it is the world's business."""

    id: str
    title: str
    channel_id: str
    created_at: float
    privacy: Privacy = "public"


@dataclass(frozen=True)
class PlaylistItem:
    """A video's place in a playlist; the same video may have two."""

    id: str
    video_id: str
    added_at: float


@dataclass(frozen=True)
class ListEntry:
    """One line of a list as a reader gets it."""

    item_id: str
    position: int
    added_at: float
    video: SimulatedVideo


@dataclass(frozen=True)
class PlaylistSlice:
    """A window on a playlist or an uploads list: `total` is the whole list, `entries` the window."""

    ref: str
    title: str
    owner: SimulatedChannel
    created_at: float
    uploads: bool
    total: int
    entries: tuple[ListEntry, ...]


class World:
    """Everything there is. One lock: any thread may change it while another reads."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.RLock()
        self._random = Random(seed)
        self._serial = 0
        self._channels: dict[str, SimulatedChannel] = {}
        self._videos: dict[str, SimulatedVideo] = {}
        self._playlists: dict[str, SimulatedPlaylist] = {}
        self._items: dict[str, list[PlaylistItem]] = {}
        self._shelves: dict[str, list[tuple[float, int, str]]] = {}  # per channel, oldest first
        self._listed_in: dict[str, set[str]] = {}
        self._versions: dict[str, int] = {}

    # Changes

    def add_channel(
        self, title: str, *, at: float, handle: str | None = None, channel_id: str | None = None
    ) -> SimulatedChannel:
        """A new channel without videos; `channel_id` only where a test needs a certain one."""
        with self._lock:
            ref = channel_id or self._new_id("UC", 16, self._channels)
            channel = SimulatedChannel(
                id=ref,
                title=title,
                handle=handle or f"@{ref[2:10].lower()}",
                created_at=at,
                subscribers=self._random.randrange(100, 5_000_000),
                hides_subscribers=self._random.random() < 0.1,
            )
            self._channels[ref] = channel
            self._shelves.setdefault(ref, [])
            self._touch(ref)
            return channel

    def delete_channel(self, channel_id: str) -> None:
        """The channel and its videos are gone for good; in playlists they read "Deleted video"."""
        with self._lock:
            self._known_channel(channel_id)
            for _, _, video_id in list(self._shelves[channel_id]):
                self._change(video_id, privacy="deleted")
            del self._channels[channel_id]
            self._touch(channel_id)

    def add_playlist(
        self,
        title: str,
        *,
        owner: str,
        at: float,
        privacy: Privacy = "public",
        playlist_id: str | None = None,
    ) -> SimulatedPlaylist:
        """An empty playlist that belongs to the channel `owner`."""
        with self._lock:
            self._known_channel(owner)
            ref = playlist_id or self._new_id("PL", 24, self._playlists)
            self._playlists[ref] = SimulatedPlaylist(ref, title, owner, at, privacy)
            self._items[ref] = []
            self._touch(ref)
            return self._playlists[ref]

    def upload(
        self,
        channel_id: str,
        title: str,
        *,
        at: float,
        kind: Kind = "video",
        privacy: Privacy = "public",
        description: str | None = None,
        video_id: str | None = None,
    ) -> SimulatedVideo:
        """A new video, published in the second `at`; several may share it, the later one counts as newer."""
        with self._lock:
            self._known_channel(channel_id)
            self._serial += 1
            video = SimulatedVideo(
                id=video_id or self._new_id("", 8, self._videos),
                channel_id=channel_id,
                title=title,
                description=_blurb(title) if description is None else description,
                kind=kind,
                privacy=privacy,
                published_at=at,
                updated_at=at,
                duration=self._new_duration(kind),
                views=self._random.randrange(0, 50_000),
                views_per_hour=self._random.randrange(0, 2_000),
                serial=self._serial,
                ever_public=privacy == "public",
                hides_likes=self._random.random() < 0.05,
                comments_off=self._random.random() < 0.05,
                scheduled_at=at + 3600 if kind == "upcoming" else at if kind == "live" else None,
                started_at=at if kind == "live" else None,
            )
            self._videos[video.id] = video
            bisect.insort(self._shelves[channel_id], (at, video.serial, video.id))
            self._touch(channel_id)
            return video

    def add_to_playlist(self, playlist_id: str, video_id: str, *, at: float, at_top: bool = False) -> PlaylistItem:
        """Added last, as YouTube does, unless the owner set "add to top"."""
        with self._lock:
            items = self._known_items(playlist_id)
            self._known_video(video_id)
            item = PlaylistItem(item_id(playlist_id, f"{self._random.getrandbits(64):016X}"), video_id, at)
            items.insert(0 if at_top else len(items), item)
            self._listed_in.setdefault(video_id, set()).add(playlist_id)
            self._touch(playlist_id)
            return item

    def remove_from_playlist(self, playlist_id: str, video_id: str) -> None:
        """Every place that the video has in the list."""
        with self._lock:
            items = self._known_items(playlist_id)
            kept = [item for item in items if item.video_id != video_id]
            if len(kept) == len(items):
                raise UnknownIdError(f"video {video_id!r} is not in playlist {playlist_id!r}")
            self._items[playlist_id] = kept
            self._listed_in[video_id].discard(playlist_id)
            self._touch(playlist_id)

    def set_privacy(self, video_id: str, privacy: Privacy, *, at: float) -> SimulatedVideo:
        """Going public for the first time is what publishes a video: only then `published_at` moves."""
        with self._lock:
            video = self._known_video(video_id)
            if privacy == "public" and not video.ever_public:
                self._reshelve(video, at)
                return self._change(video_id, privacy=privacy, published_at=at, updated_at=at, ever_public=True)
            return self._change(video_id, privacy=privacy, updated_at=at)

    def delete(self, video_id: str, *, at: float) -> SimulatedVideo:
        """Gone for good; a playlist still shows it, as "Deleted video"."""
        return self.set_privacy(video_id, "deleted", at=at)

    def edit_title(self, video_id: str, title: str, *, at: float) -> SimulatedVideo:
        with self._lock:
            self._known_video(video_id)
            return self._change(video_id, title=title, updated_at=at)

    def recount(self, video_id: str, views: int, *, at: float) -> SimulatedVideo:
        """YouTube counts anew: from now on these views, which may be fewer than before, and growth as ever."""
        with self._lock:
            video = self._known_video(video_id)
            grown = int(video.views_per_hour * max(0.0, at - video.published_at) / 3600)
            return self._change(video_id, views=views - grown, updated_at=at)

    def set_growth(self, channel_id: str, subscribers_per_day: int) -> SimulatedChannel:
        """How many subscribers a channel gains a day, counted from its first; may be negative."""
        with self._lock:
            self._known_channel(channel_id)
            self._channels[channel_id] = replace(self._channels[channel_id], subscribers_per_day=subscribers_per_day)
            return self._channels[channel_id]

    def set_hidden(self, video_id: str, *, likes: bool, comments: bool) -> SimulatedVideo:
        """Which of a video's counters nobody sees."""
        with self._lock:
            self._known_video(video_id)
            return self._change(video_id, hides_likes=likes, comments_off=comments)

    def touch(self, video_id: str, *, at: float) -> SimulatedVideo:
        """`updated` moves and nothing else, as it often does."""
        with self._lock:
            self._known_video(video_id)
            return self._change(video_id, updated_at=at)

    def start_live(self, video_id: str, *, at: float) -> SimulatedVideo:
        """An upcoming stream begins."""
        with self._lock:
            self._known_video(video_id)
            return self._change(video_id, kind="live", started_at=at, updated_at=at)

    def end_live(self, video_id: str, *, at: float) -> SimulatedVideo:
        """A stream is over and becomes an ordinary video with a length."""
        with self._lock:
            video = self._known_video(video_id)
            length = max(1, int(at - (video.started_at or at)))
            return self._change(video_id, kind="video", ended_at=at, updated_at=at, duration=length)

    # Reads

    def version(self, ref: str) -> int:
        """Moves whenever the feed or the list `ref` would read differently. Needs no lock."""
        return self._versions.get(channel_of(ref) or ref, 0)

    def channel(self, channel_id: str) -> SimulatedChannel | None:
        return self._channels.get(channel_id)

    def by_handle(self, handle: str) -> SimulatedChannel | None:
        wanted = "@" + handle.removeprefix("@").lower()
        with self._lock:
            return next((c for c in self._channels.values() if c.handle.lower() == wanted), None)

    def video(self, video_id: str) -> SimulatedVideo | None:
        return self._videos.get(video_id)

    def playlist(self, playlist_id: str) -> SimulatedPlaylist | None:
        return self._playlists.get(playlist_id)

    def channels(self) -> tuple[SimulatedChannel, ...]:
        with self._lock:
            return tuple(self._channels.values())

    def playlists(self) -> tuple[SimulatedPlaylist, ...]:
        with self._lock:
            return tuple(self._playlists.values())

    def newest(
        self, channel_id: str, limit: int | None = None, kinds: Container[Kind] = KINDS
    ) -> tuple[SimulatedVideo, ...]:
        """The public videos of a channel, newest first."""
        with self._lock:
            found: list[SimulatedVideo] = []
            for video in self._public(channel_id):
                if len(found) == limit:
                    break
                if video.kind in kinds:
                    found.append(video)
            return tuple(found)

    def listing(
        self, ref: str, start: int = 0, count: int | None = None, *, as_owner: bool = False
    ) -> PlaylistSlice | None:
        """A playlist or an uploads list; None where the API says playlistNotFound.

        That is also a private list to all but its owner, and the uploads list of a channel without videos
        (FACTS §1.1).
        """
        with self._lock:
            owner = channel_of(ref)
            if owner:
                return self._uploads(ref, owner, start, count)
            return self._handmade(ref, start, count, as_owner)

    def size(self, ref: str) -> int:
        """How many items a playlist has, or videos a channel, whatever their privacy."""
        with self._lock:
            return len(self._items.get(ref) or self._shelves.get(ref) or ())

    def video_count(self) -> int:
        return len(self._videos)

    # Inside

    def _uploads(self, ref: str, owner_id: str, start: int, count: int | None) -> PlaylistSlice | None:
        owner = self._channels.get(owner_id)
        videos = self.newest(owner_id, kinds=UPLOAD_LISTS[ref[:-ID_TAIL]]) if owner else ()
        if not owner or not videos:
            return None
        shown = videos[start:] if count is None else videos[start : start + count]
        entries = tuple(
            ListEntry(item_id(ref, video.id), start + place, video.published_at, video)
            for place, video in enumerate(shown)
        )
        title = f"Uploads from {owner.title}"
        return PlaylistSlice(ref, title, owner, owner.created_at, True, len(videos), entries)

    def _handmade(self, ref: str, start: int, count: int | None, as_owner: bool) -> PlaylistSlice | None:
        playlist = self._playlists.get(ref)
        owner = self._channels.get(playlist.channel_id) if playlist else None
        hidden = ("deleted",) if as_owner else ("private", "deleted")
        if not playlist or not owner or playlist.privacy in hidden:
            return None
        items = self._items[ref]
        shown = items[start:] if count is None else items[start : start + count]
        entries = tuple(
            ListEntry(item.id, start + place, item.added_at, self._videos[item.video_id])
            for place, item in enumerate(shown)
        )
        return PlaylistSlice(ref, playlist.title, owner, playlist.created_at, False, len(items), entries)

    def _public(self, channel_id: str) -> Iterator[SimulatedVideo]:
        for _, _, video_id in reversed(self._shelves.get(channel_id, [])):
            video = self._videos[video_id]
            if video.privacy == "public":
                yield video

    def _change(self, video_id: str, **fields: object) -> SimulatedVideo:
        video = replace(self._videos[video_id], **fields)  # type: ignore[arg-type]
        self._videos[video_id] = video
        self._touch(video.channel_id, *self._listed_in.get(video_id, ()))
        return video

    def _reshelve(self, video: SimulatedVideo, at: float) -> None:
        shelf = self._shelves[video.channel_id]
        shelf.remove((video.published_at, video.serial, video.id))
        bisect.insort(shelf, (at, video.serial, video.id))

    def _touch(self, *refs: str) -> None:
        for ref in refs:
            self._versions[ref] = self._versions.get(ref, 0) + 1

    def _new_id(self, prefix: str, size: int, taken: Container[str]) -> str:
        while True:
            name = prefix + _letters(self._random.randbytes(size))
            if name not in taken:
                return name

    def _new_duration(self, kind: Kind) -> int:
        match kind:
            case "video":
                return self._random.randrange(61, 5400)
            case "short":
                return self._random.randrange(8, 60)
            case _:
                return 0

    def _known_channel(self, channel_id: str) -> SimulatedChannel:
        if channel_id not in self._channels:
            raise UnknownIdError(f"no channel {channel_id!r} in this world; GET /sim/state lists them")
        return self._channels[channel_id]

    def _known_video(self, video_id: str) -> SimulatedVideo:
        if video_id not in self._videos:
            raise UnknownIdError(f"no video {video_id!r} in this world; upload it first")
        return self._videos[video_id]

    def _known_items(self, playlist_id: str) -> list[PlaylistItem]:
        if playlist_id not in self._items:
            raise UnknownIdError(f"no playlist {playlist_id!r} in this world; GET /sim/state lists them")
        return self._items[playlist_id]


def channel_of(ref: str) -> str | None:
    """The channel behind an uploads list (`UU…`, `UULF…`); None for any other list."""
    return "UC" + ref[-ID_TAIL:] if ref[:-ID_TAIL] in UPLOAD_LISTS else None


def item_id(ref: str, tail: str) -> str:
    """A playlist item's id: base64 of the list and sixteen hex digits, or of the list and the video."""
    return base64.b64encode(f"{ref}.{tail}".encode()).decode().rstrip("=")


def _letters(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _blurb(title: str) -> str:
    return f"{title}\n\nMade up by the simulated YouTube: <b>no</b> such video & no such link exists."
