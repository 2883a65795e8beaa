"""Channels, videos and playlists of the simulated YouTube. The caller passes the time to every change."""

import base64
import bisect
import threading
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Literal, TypeVar, get_args

from csi.errors import CsiError

T = TypeVar("T")
Kind = Literal["video", "short", "live", "upcoming"]
Privacy = Literal["public", "unlisted", "private", "deleted"]

KINDS: tuple[Kind, ...] = get_args(Kind)

# The kinds of video in the uploads list (UU) and in the undocumented lists beside it.
UPLOAD_LISTS: dict[str, tuple[Kind, ...]] = {
    "UU": KINDS,
    "UULF": ("video",),
    "UUSH": ("short",),
    "UULV": ("live", "upcoming"),
}
ID_TAIL = 22  # length of the part that the ids of a channel and of its uploads lists share

_DURATIONS = {"video": (61, 5400), "short": (8, 60)}  # in seconds; a stream has none until it ends
_DESCRIPTION = "{}\n\nMade up by the simulated YouTube: <b>no</b> such video & no such link exists."


class UnknownIdError(CsiError):
    """The world has no channel, video or playlist with this id."""


@dataclass(frozen=True)
class SimulatedChannel:
    """A channel; it owns videos and playlists."""

    id: str
    title: str
    handle: str
    created_at: float
    subscribers: int
    hides_subscribers: bool = False
    subscribers_per_day: int = 0

    def subscribers_at(self, now: float) -> int:
        """Grown by `subscribers_per_day` since the channel was created, and never negative."""
        return max(self.subscribers + int(self.subscribers_per_day * (now - self.created_at) / 86_400), 0)


@dataclass(frozen=True)
class SimulatedVideo:
    """One state of a video. A change creates a new object."""

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
        """Public or unlisted: readable with an API key."""
        return self.privacy in ("public", "unlisted")

    def views_at(self, now: float) -> int:
        """Views grow by the hour; an upcoming stream has none."""
        if self.kind == "upcoming":
            return 0
        return max(self.views + int(self.views_per_hour * max(0.0, now - self.published_at) / 3600), 0)


@dataclass(frozen=True)
class SimulatedPlaylist:
    """A playlist; World keeps its items."""

    id: str
    title: str
    channel_id: str
    created_at: float
    privacy: Privacy = "public"


@dataclass(frozen=True)
class PlaylistItem:
    """An item of a playlist; the same video may be in it twice."""

    id: str
    video_id: str
    added_at: float


@dataclass(frozen=True)
class ListEntry:
    """One item of a playlist or an uploads list, with its video, as a client reads it."""

    item_id: str
    position: int
    added_at: float
    video: SimulatedVideo


@dataclass(frozen=True)
class PlaylistSlice:
    """A part of a playlist or an uploads list: `entries` is the part, `total` the length of the whole list."""

    ref: str
    title: str
    owner: SimulatedChannel
    created_at: float
    uploads: bool
    total: int
    entries: tuple[ListEntry, ...]


@dataclass
class GrowthClock:
    """How fast views and subscribers grow: since `since`, one second counts as `speed` seconds."""

    speed: float = 1.0
    since: float = 0.0
    grown: float = 0.0
    """The time that counted up to `since`, beyond that of a clock."""

    def at(self, now: float) -> float:
        """The time up to which views and subscribers have grown at `now`."""
        return now + self.grown + max(now - self.since, 0.0) * (self.speed - 1.0)

    def set_speed(self, speed: float, now: float) -> None:
        """What has grown until now stays."""
        self.grown, self.since, self.speed = self.at(now) - now, now, speed


class World:
    """All channels, videos and playlists. One lock: any thread may change them while another reads."""

    def __init__(self, seed: int = 0) -> None:
        self.growth = GrowthClock()
        self._lock = threading.RLock()
        self._random = Random(seed)
        self._serial = 0
        self._channels: dict[str, SimulatedChannel] = {}
        self._videos: dict[str, SimulatedVideo] = {}
        self._playlists: dict[str, SimulatedPlaylist] = {}
        self._items: dict[str, list[PlaylistItem]] = {}
        self._uploads_by_channel: dict[str, list[tuple[float, int, str]]] = {}  # oldest first
        self._playlists_of_video: dict[str, set[str]] = {}
        self._versions: dict[str, int] = {}

    # Changes

    def add_channel(
        self,
        title: str,
        *,
        at: float,
        handle: str | None = None,
        channel_id: str | None = None,
        subscribers_per_day: int = 0,
    ) -> SimulatedChannel:
        """A new channel without videos. `channel_id` is for tests that need a known id."""
        with self._lock:
            ref = channel_id or self._new_id("UC", 16, self._channels)
            channel = SimulatedChannel(
                id=ref,
                title=title,
                handle=handle or f"@{ref[2:10].lower()}",
                created_at=at,
                subscribers=self._random.randrange(100, 5_000_000),
                hides_subscribers=self._random.random() < 0.1,
                subscribers_per_day=subscribers_per_day,
            )
            self._channels[ref] = channel
            self._uploads_by_channel.setdefault(ref, [])
            self._touch(ref)
            return channel

    def delete_channel(self, channel_id: str) -> None:
        """Delete the channel and its videos; playlists show them as "Deleted video"."""
        with self._lock:
            _known(self._channels, "channel", channel_id)
            for _, _, video_id in list(self._uploads_by_channel[channel_id]):
                self._change(video_id, privacy="deleted")
            del self._channels[channel_id]
            self._touch(channel_id)

    def add_playlist(self, title: str, *, owner: str, at: float, privacy: Privacy = "public") -> SimulatedPlaylist:
        """An empty playlist of the channel `owner`."""
        with self._lock:
            _known(self._channels, "channel", owner)
            ref = self._new_id("PL", 24, self._playlists)
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
    ) -> SimulatedVideo:
        """A new video, published at `at`. Of two videos with the same time, the later upload is newer."""
        with self._lock:
            _known(self._channels, "channel", channel_id)
            self._serial += 1
            video = SimulatedVideo(
                id=self._new_id("", 8, self._videos),
                channel_id=channel_id,
                title=title,
                description=_DESCRIPTION.format(title) if description is None else description,
                kind=kind,
                privacy=privacy,
                published_at=at,
                updated_at=at,
                duration=self._random.randrange(*_DURATIONS[kind]) if kind in _DURATIONS else 0,
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
            bisect.insort(self._uploads_by_channel[channel_id], (at, video.serial, video.id))
            self._touch(channel_id)
            return video

    def add_to_playlist(self, playlist_id: str, video_id: str, *, at: float, at_top: bool = False) -> PlaylistItem:
        """Add the video at the end, as YouTube does unless the owner chose "add to top"."""
        with self._lock:
            items = _known(self._items, "playlist", playlist_id)
            _known(self._videos, "video", video_id)
            item = PlaylistItem(item_id(playlist_id, f"{self._random.getrandbits(64):016X}"), video_id, at)
            items.insert(0 if at_top else len(items), item)
            self._playlists_of_video.setdefault(video_id, set()).add(playlist_id)
            self._touch(playlist_id)
            return item

    def remove_from_playlist(self, playlist_id: str, video_id: str) -> None:
        """Remove every item of the video from the playlist."""
        with self._lock:
            items = _known(self._items, "playlist", playlist_id)
            kept = [item for item in items if item.video_id != video_id]
            if len(kept) == len(items):
                raise UnknownIdError(f"video {video_id!r} is not in playlist {playlist_id!r}")
            self._items[playlist_id] = kept
            self._playlists_of_video[video_id].discard(playlist_id)
            self._touch(playlist_id)

    def set_privacy(self, video_id: str, privacy: Privacy, *, at: float) -> SimulatedVideo:
        """`published_at` changes only when the video becomes public for the first time."""
        with self._lock:
            video = _known(self._videos, "video", video_id)
            if privacy == "public" and not video.ever_public:
                uploads = self._uploads_by_channel[video.channel_id]
                uploads.remove((video.published_at, video.serial, video.id))
                bisect.insort(uploads, (at, video.serial, video.id))
                return self._change(video_id, privacy=privacy, published_at=at, updated_at=at, ever_public=True)
            return self._change(video_id, privacy=privacy, updated_at=at)

    def delete(self, video_id: str, *, at: float) -> SimulatedVideo:
        """Delete the video; a playlist still shows it, as "Deleted video"."""
        return self.set_privacy(video_id, "deleted", at=at)

    def edit(self, video_id: str, *, at: float, **fields: object) -> SimulatedVideo:
        """Change fields of a video, such as its title; without fields only `updated`, as real feeds often do."""
        return self._change(video_id, updated_at=at, **fields)

    def grow(self, video_id: str, *, at: float, views_per_hour: int) -> SimulatedVideo:
        """From now on the video gains so many views an hour; those that it has stay."""
        with self._lock:
            video, now = _known(self._videos, "video", video_id), self.growth.at(at)
            elapsed = max(0.0, now - video.published_at) / 3600
            views = video.views_at(now) - int(views_per_hour * elapsed)
            return self._change(video_id, views=views, views_per_hour=views_per_hour)

    def grow_channel(self, channel_id: str, *, at: float, subscribers_per_day: int) -> SimulatedChannel:
        """From now on the channel gains so many subscribers a day; those that it has stay."""
        with self._lock:
            channel, now = _known(self._channels, "channel", channel_id), self.growth.at(at)
            elapsed = (now - channel.created_at) / 86_400
            subscribers = channel.subscribers_at(now) - int(subscribers_per_day * elapsed)
            changed = replace(channel, subscribers=subscribers, subscribers_per_day=subscribers_per_day)
            self._channels[channel_id] = changed
            self._touch(channel_id)
            return changed

    def start_live(self, video_id: str, *, at: float) -> SimulatedVideo:
        """Start an upcoming stream."""
        return self._change(video_id, kind="live", started_at=at, updated_at=at)

    def end_live(self, video_id: str, *, at: float) -> SimulatedVideo:
        """End a stream: it becomes an ordinary video with a duration."""
        with self._lock:
            video = _known(self._videos, "video", video_id)
            length = max(1, int(at - (video.started_at or at)))
            return self._change(video_id, kind="video", ended_at=at, updated_at=at, duration=length)

    # Reads

    def version(self, ref: str) -> int:
        """A number that changes whenever the content of the feed or list `ref` changes. Needs no lock."""
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
            uploads = reversed(self._uploads_by_channel.get(channel_id, []))
            videos = (self._videos[video_id] for _, _, video_id in uploads)
            public = (video for video in videos if video.privacy == "public" and video.kind in kinds)
            return tuple(islice(public, limit))

    def listing(
        self, ref: str, start: int = 0, count: int | None = None, *, as_owner: bool = False
    ) -> PlaylistSlice | None:
        """A part of a playlist or an uploads list. None where the API answers playlistNotFound: an unknown list, a
        private playlist unless `as_owner`, and the uploads list of a channel without public videos.
        """
        with self._lock:
            end = None if count is None else start + count
            if channel := channel_of(ref):
                owner = self._channels.get(channel)
                public = self.newest(owner.id, kinds=UPLOAD_LISTS[ref[:-ID_TAIL]]) if owner else ()
                if not owner or not public:
                    return None
                entries = tuple(
                    ListEntry(item_id(ref, video.id), position, video.published_at, video)
                    for position, video in enumerate(public[start:end], start)
                )
                title = f"Uploads from {owner.title}"
                return PlaylistSlice(ref, title, owner, owner.created_at, True, len(public), entries)
            playlist = self._playlists.get(ref)
            owner = self._channels.get(playlist.channel_id) if playlist else None
            hidden = ("deleted",) if as_owner else ("private", "deleted")
            if not playlist or not owner or playlist.privacy in hidden:
                return None
            items = self._items[ref]
            entries = tuple(
                ListEntry(item.id, position, item.added_at, self._videos[item.video_id])
                for position, item in enumerate(items[start:end], start)
            )
            return PlaylistSlice(ref, playlist.title, owner, playlist.created_at, False, len(items), entries)

    def size(self, ref: str) -> int:
        """The number of items in a playlist, or of videos in a channel, with any privacy."""
        with self._lock:
            return len(self._items.get(ref) or self._uploads_by_channel.get(ref) or ())

    def video_count(self) -> int:
        return len(self._videos)

    def _change(self, video_id: str, **fields: object) -> SimulatedVideo:
        with self._lock:
            video = replace(_known(self._videos, "video", video_id), **fields)  # type: ignore[arg-type]
            self._videos[video_id] = video
            self._touch(video.channel_id, *self._playlists_of_video.get(video_id, ()))
            return video

    def _touch(self, *refs: str) -> None:
        for ref in refs:
            self._versions[ref] = self._versions.get(ref, 0) + 1

    def _new_id(self, prefix: str, size: int, taken: Container[str]) -> str:
        while True:
            ref = prefix + base64.urlsafe_b64encode(self._random.randbytes(size)).decode().rstrip("=")
            if ref not in taken:
                return ref


def channel_of(ref: str) -> str | None:
    """The channel behind an uploads list (`UU…`, `UULF…`); None for any other list."""
    return "UC" + ref[-ID_TAIL:] if ref[:-ID_TAIL] in UPLOAD_LISTS else None


def item_id(ref: str, tail: str) -> str:
    """The id of a playlist item: base64 of the list id and `tail` (sixteen hex digits, or the video id)."""
    return base64.b64encode(f"{ref}.{tail}".encode()).decode().rstrip("=")


def _known(table: Mapping[str, T], kind: str, ref: str) -> T:
    if ref not in table:
        remedy = "upload it first" if kind == "video" else "GET /sim/state lists them"
        raise UnknownIdError(f"no {kind} {ref!r} in this world; {remedy}")
    return table[ref]
