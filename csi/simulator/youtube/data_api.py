"""The Data API's four list calls over the world, and the quota that they use up (FACTS §1)."""

import base64
import binascii
import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from csi import clock
from csi.simulator.youtube.api_errors import ApiRefusalError
from csi.simulator.youtube.response import ServedItem, SimulatedResponse, served_item, served_upload
from csi.simulator.youtube.world import ListEntry, PlaylistSlice, SimulatedChannel, SimulatedVideo, World

JSON = "application/json; charset=UTF-8"
MOST = 50
USUAL = 5

Query = Mapping[str, str]
Fields = dict[str, Any]

_PACIFIC = ZoneInfo("America/Los_Angeles")
_THUMBNAILS = (
    ("default", "default", 120, 90),
    ("medium", "mqdefault", 320, 180),
    ("high", "hqdefault", 480, 360),
    ("standard", "sddefault", 640, 480),
    ("maxres", "maxresdefault", 1280, 720),
)


class Quota:
    """Units used on a Pacific day; the day changes at midnight in Los Angeles."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._day: date | None = None
        self._used = 0

    def charge(self, now: float) -> bool:
        """One unit. False when the day's units are gone; then nothing is booked."""
        with self._lock:
            self._turn(now)
            if self._used >= self.limit:
                return False
            self._used += 1
            return True

    def used(self, now: float) -> int:
        with self._lock:
            self._turn(now)
            return self._used

    def _turn(self, now: float) -> None:
        today = datetime.fromtimestamp(now, UTC).astimezone(_PACIFIC).date()
        if today != self._day:
            self._day, self._used = today, 0


def playlist_items(
    world: World, query: Query, now: float, *, short_pages: bool = False, as_owner: bool = False
) -> SimulatedResponse:
    """`playlistItems.list`: by `playlistId` (and `videoId`), or by `id`."""
    parts = _parts(query, ("id", "snippet", "contentDetails", "status"))
    if "id" in query:
        return _items_by_id(world, query, parts)
    ref = query.get("playlistId")
    if not ref:
        raise ApiRefusalError("missingRequiredParameter", "No filter selected. Expected one of: playlistId, id")
    if "videoId" in query:
        return _items_of_video(world, ref, query["videoId"], parts)
    return _items_page(world, ref, query, parts, short_pages=short_pages, as_owner=as_owner)


def videos(world: World, query: Query, now: float) -> SimulatedResponse:
    """`videos.list`: an id that cannot be read is silently missing."""
    known = ("id", "snippet", "contentDetails", "statistics", "status", "liveStreamingDetails")
    parts = _parts(query, known)
    found = [video for name in _ids(query) if (video := world.video(name)) and video.readable]
    rows = [_video_row(world, video, parts, now) for video in found]
    return _answer("youtube#videoListResponse", [_tagged(row) for row in rows])


def channels(world: World, query: Query, now: float) -> SimulatedResponse:
    """`channels.list`. Nothing found by id is an empty `items`; by handle there is no `items` at all."""
    parts = _parts(query, ("id", "snippet", "contentDetails", "statistics", "status"))
    by_handle = "forHandle" in query
    candidates = [world.by_handle(query["forHandle"])] if by_handle else map(world.channel, _ids(query))
    rows = [_tagged(_channel_row(world, channel, parts, now)) for channel in candidates if channel]
    return _answer("youtube#channelListResponse", rows, per_page=USUAL, omit_empty=by_handle)


def playlists(world: World, query: Query, now: float) -> SimulatedResponse:
    """`playlists.list`, by ids or by the owner's channel: one unit tells the size of fifty lists."""
    parts = _parts(query, ("id", "snippet", "contentDetails", "status"))
    if "channelId" in query and "id" not in query:
        return _playlists_of(world, query, parts)
    rows = [row for ref in _ids(query) if (row := _playlist_row(world, ref, parts))]
    return _answer("youtube#playlistListResponse", [_tagged(row) for row in rows], per_page=USUAL)


ENDPOINTS: dict[str, Callable[[World, Query, float], SimulatedResponse]] = {
    "playlistItems": playlist_items,
    "videos": videos,
    "channels": channels,
    "playlists": playlists,
}


def page_token(offset: int, *, back: bool = False) -> str:
    """Opaque, and built like the real ones: two layers of base64 around a position."""
    inner = b"PT:" + _plain64(b"\x08" + _varint(offset))
    return _plain64(bytes((0x10, int(back), 0x1A, len(inner))) + inner).decode()


def page_offset(token: str) -> int:
    """RefusalError("invalidPageToken") for everything that page_token did not make."""
    try:
        inner = _unplain64(token.encode())[4:]
        offset = _unvarint(_unplain64(inner.removeprefix(b"PT:"))[1:])
    except (binascii.Error, ValueError, IndexError):
        raise ApiRefusalError("invalidPageToken") from None
    if token not in (page_token(offset), page_token(offset, back=True)):
        raise ApiRefusalError("invalidPageToken")
    return offset


def iso_duration(seconds: int) -> str:
    """`PT21M7S`, `PT1H2M`, `P1DT2H`; nothing at all, as for a stream, is `P0D`."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    clocked = "".join(f"{value}{unit}" for value, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if value)
    dated = f"{days}D" if days else ""
    return f"P{dated}T{clocked}" if clocked else f"P{dated or '0D'}"


# playlistItems


def _items_page(
    world: World, ref: str, query: Query, parts: frozenset[str], *, short_pages: bool, as_owner: bool
) -> SimulatedResponse:
    if ref in ("WL", "HL"):
        raise ApiRefusalError("watchLaterNotAccessible" if ref == "WL" else "watchHistoryNotAccessible")
    size = _page_size(query)
    start = page_offset(query["pageToken"]) if query.get("pageToken") else 0
    held = size - 1 if short_pages and size > 1 else size
    listing = world.listing(ref, start, held, as_owner=as_owner)
    if listing is None:
        raise ApiRefusalError("playlistNotFound")
    rows = [_tagged(_item_row(world, listing, entry, parts)) for entry in listing.entries]
    return _answer(
        "youtube#playlistItemListResponse",
        rows,
        total=listing.total,
        per_page=size,
        tokens=_tokens(start, held, listing.total),
        served=_served(listing),
    )


def _items_of_video(world: World, ref: str, video_id: str, parts: frozenset[str]) -> SimulatedResponse:
    listing = world.listing(ref)
    if listing is None:
        raise ApiRefusalError("playlistNotFound")
    kept = [entry for entry in listing.entries if entry.video.id == video_id]
    rows = [_tagged(_item_row(world, listing, entry, parts)) for entry in kept]
    return _answer("youtube#playlistItemListResponse", rows, per_page=USUAL)


def _items_by_id(world: World, query: Query, parts: frozenset[str]) -> SimulatedResponse:
    rows = []
    for name in _ids(query):
        listing = world.listing(_list_of(name))
        for entry in listing.entries if listing else ():
            if listing and entry.item_id == name:
                rows.append(_tagged(_item_row(world, listing, entry, parts)))
    return _answer("youtube#playlistItemListResponse", rows)


def _item_row(world: World, listing: PlaylistSlice, entry: ListEntry, parts: frozenset[str]) -> Fields:
    row: Fields = {"kind": "youtube#playlistItem", "etag": "", "id": entry.item_id}
    if "snippet" in parts:
        row["snippet"] = _item_snippet(world, listing, entry)
    if "contentDetails" in parts:
        row["contentDetails"] = {"videoId": entry.video.id}
        if entry.video.readable:
            row["contentDetails"]["videoPublishedAt"] = clock.iso(entry.video.published_at)
    if "status" in parts:
        # Captures show "public" even for a deleted video: the title tells, this field does not.
        privacy = entry.video.privacy
        row["status"] = {"privacyStatus": "public" if privacy == "deleted" else privacy}
    return row


def _item_snippet(world: World, listing: PlaylistSlice, entry: ListEntry) -> Fields:
    video = entry.video
    title, description, thumbnails = _visible(video)
    snippet: Fields = {
        "publishedAt": clock.iso(entry.added_at),
        "channelId": listing.owner.id,
        "title": title,
        "description": description,
        "thumbnails": thumbnails,
        "channelTitle": listing.owner.title,
        "playlistId": listing.ref,
        "position": entry.position,
        "resourceId": {"kind": "youtube#video", "videoId": video.id},
    }
    owner = world.channel(video.channel_id)
    if video.readable and owner:
        snippet |= {"videoOwnerChannelTitle": owner.title, "videoOwnerChannelId": owner.id}
    return snippet


def _visible(video: SimulatedVideo) -> tuple[str, str, Fields]:
    if video.readable:
        return video.title, video.description, _thumbnails(video.id)
    if video.privacy == "deleted":
        return "Deleted video", "This video is unavailable.", {}
    return "Private video", "This video is private.", {}


def _served(listing: PlaylistSlice) -> tuple[ServedItem, ...]:
    readable = [entry for entry in listing.entries if entry.video.readable]
    if listing.uploads:
        return tuple(served_upload("uploads", listing.ref, entry.video) for entry in readable)
    return tuple(served_item("playlist", listing.ref, entry) for entry in readable)


def _list_of(name: str) -> str:
    try:
        decoded = base64.b64decode(name + "=" * (-len(name) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return decoded.partition(".")[0]


# videos, channels, playlists


def _video_row(world: World, video: SimulatedVideo, parts: frozenset[str], now: float) -> Fields:
    row: Fields = {"kind": "youtube#video", "etag": "", "id": video.id}
    sections: tuple[tuple[str, Callable[[], Fields]], ...] = (
        ("snippet", lambda: _video_snippet(world, video)),
        ("contentDetails", lambda: _video_details(video)),
        ("status", lambda: _video_status(video)),
        ("statistics", lambda: _video_statistics(video, now)),
        ("liveStreamingDetails", lambda: _live_details(video)),
    )
    for name, make in sections:
        if name in parts and (section := make()):
            row[name] = section
    return row


def _video_snippet(world: World, video: SimulatedVideo) -> Fields:
    owner = world.channel(video.channel_id)
    return {
        "publishedAt": clock.iso(video.published_at),
        "channelId": video.channel_id,
        "title": video.title,
        "description": video.description,
        "thumbnails": _thumbnails(video.id),
        "channelTitle": owner.title if owner else "",
        "categoryId": "28",
        "liveBroadcastContent": video.kind if video.kind in ("live", "upcoming") else "none",
        "localized": {"title": video.title, "description": video.description},
        "defaultAudioLanguage": "en",
    }


def _video_details(video: SimulatedVideo) -> Fields:
    return {
        "duration": iso_duration(video.duration),
        "dimension": "2d",
        "definition": "hd",
        "caption": "true" if video.serial % 2 else "false",
        "licensedContent": False,
        "contentRating": {},
        "projection": "rectangular",
    }


def _video_status(video: SimulatedVideo) -> Fields:
    return {
        "uploadStatus": "uploaded" if video.kind in ("live", "upcoming") else "processed",
        "privacyStatus": video.privacy,
        "license": "youtube",
        "embeddable": True,
        "publicStatsViewable": True,
        "madeForKids": False,
    }


def _video_statistics(video: SimulatedVideo, now: float) -> Fields:
    """Numbers are strings; a hidden one is absent, never 0."""
    views = video.views_at(now)
    numbers = {"viewCount": str(views)}
    if not video.hides_likes:
        numbers["likeCount"] = str(views // 25)
    numbers["favoriteCount"] = "0"
    if not video.comments_off:
        numbers["commentCount"] = str(views // 400)
    return numbers


def _live_details(video: SimulatedVideo) -> Fields:
    moments = {
        "actualStartTime": video.started_at,
        "actualEndTime": video.ended_at,
        "scheduledStartTime": video.scheduled_at,
    }
    details: Fields = {name: clock.iso(moment) for name, moment in moments.items() if moment is not None}
    if video.kind == "live":
        details["concurrentViewers"] = str(video.views // 100)
    return details


def _channel_row(world: World, channel: SimulatedChannel, parts: frozenset[str], now: float) -> Fields:
    row: Fields = {"kind": "youtube#channel", "etag": "", "id": channel.id}
    if "snippet" in parts:
        row["snippet"] = _channel_snippet(channel)
    if "contentDetails" in parts:
        row["contentDetails"] = {"relatedPlaylists": {"likes": "", "uploads": "UU" + channel.id[2:]}}
    if "statistics" in parts:
        row["statistics"] = _channel_statistics(world, channel, now)
    if "status" in parts:
        row["status"] = {
            "privacyStatus": "public",
            "isLinked": True,
            "longUploadsStatus": "longUploadsUnspecified",
        }
    return row


def _channel_snippet(channel: SimulatedChannel) -> Fields:
    address = f"https://yt3.ggpht.com/simulated-{channel.id[2:]}"
    sizes = (("default", 88), ("medium", 240), ("high", 800))
    description = f"{channel.title} exists only in a simulation."
    return {
        "title": channel.title,
        "description": description,
        "customUrl": channel.handle,
        "publishedAt": clock.iso(channel.created_at),
        "thumbnails": {n: {"url": f"{address}=s{s}", "width": s, "height": s} for n, s in sizes},
        "localized": {"title": channel.title, "description": description},
        "country": "DE",
    }


def _channel_statistics(world: World, channel: SimulatedChannel, now: float) -> Fields:
    shown = world.newest(channel.id)
    numbers: Fields = {"viewCount": str(sum(video.views_at(now) for video in shown))}
    if not channel.hides_subscribers:
        numbers["subscriberCount"] = str(three_digits(channel.subscribers_at(now)))
    return numbers | {"hiddenSubscriberCount": channel.hides_subscribers, "videoCount": str(len(shown))}


def three_digits(number: int) -> int:
    """Subscribers are rounded down to three digits, since 2019."""
    unit = int(10 ** max(0, len(str(number)) - 3))
    return number // unit * unit


def _playlist_row(world: World, ref: str, parts: frozenset[str]) -> Fields | None:
    listing = world.listing(ref, 0, 1)
    if listing is None:
        return None
    row: Fields = {"kind": "youtube#playlist", "etag": "", "id": ref}
    if "snippet" in parts:
        row["snippet"] = _playlist_snippet(listing)
    if "status" in parts:
        playlist = world.playlist(ref)
        row["status"] = {"privacyStatus": playlist.privacy if playlist else "public"}
    if "contentDetails" in parts:
        row["contentDetails"] = {"itemCount": listing.total}
    return row


def _playlist_snippet(listing: PlaylistSlice) -> Fields:
    first = listing.entries[0].video if listing.entries else None
    return {
        "publishedAt": clock.iso(listing.created_at),
        "channelId": listing.owner.id,
        "title": listing.title,
        "description": "",
        "thumbnails": _thumbnails(first.id) if first and first.readable else {},
        "channelTitle": listing.owner.title,
        "localized": {"title": listing.title, "description": ""},
    }


def _playlists_of(world: World, query: Query, parts: frozenset[str]) -> SimulatedResponse:
    size, token = _page_size(query), query.get("pageToken")
    start = page_offset(token) if token else 0
    refs = [p.id for p in world.playlists() if p.channel_id == query["channelId"] and p.privacy == "public"]
    rows = [row for ref in refs[start : start + size] if (row := _playlist_row(world, ref, parts))]
    return _answer(
        "youtube#playlistListResponse",
        [_tagged(row) for row in rows],
        total=len(refs),
        per_page=size,
        tokens=_tokens(start, size, len(refs)),
    )


# Shared by all


def _answer(
    kind: str,
    rows: list[Fields],
    *,
    total: int | None = None,
    per_page: int | None = None,
    tokens: Fields | None = None,
    served: tuple[ServedItem, ...] = (),
    omit_empty: bool = False,
) -> SimulatedResponse:
    info = {"totalResults": len(rows) if total is None else total, "resultsPerPage": per_page or len(rows)}
    tag = _etag([kind, info, [row["etag"] for row in rows]])
    items = {} if omit_empty and not rows else {"items": rows}
    document = {"kind": kind, "etag": tag, **(tokens or {}), **items, "pageInfo": info}
    return SimulatedResponse(200, _dump(document), JSON, served=served, etag=tag)


def _tagged(row: Fields) -> Fields:
    row["etag"] = _etag(row)
    return row


def _etag(value: object) -> str:
    digest = hashlib.sha1(_dump(value), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _dump(value: object) -> bytes:
    """Compact, since a client cannot tell; a lone surrogate can only travel as its escape."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _tokens(start: int, held: int, total: int) -> Fields:
    tokens: Fields = {}
    if held and start + held < total:
        tokens["nextPageToken"] = page_token(start + held)
    if start:
        tokens["prevPageToken"] = page_token(max(0, start - held), back=True)
    return tokens


def _parts(query: Query, known: tuple[str, ...]) -> frozenset[str]:
    if not query.get("part"):
        raise ApiRefusalError("required")
    wanted = frozenset(part.strip() for part in query["part"].split(","))
    if strange := sorted(wanted.difference(known)):
        raise ApiRefusalError("unknownPart", f"'{strange[0]}'")
    return wanted


def _ids(query: Query) -> list[str]:
    names = [name for name in query.get("id", "").split(",") if name]
    if not names:
        raise ApiRefusalError("missingRequiredParameter", "No filter selected. Expected one of: id")
    if len(names) > MOST:
        raise ApiRefusalError("badRequest", f"At most {MOST} ids can be asked for at once; these are {len(names)}.")
    return list(dict.fromkeys(names))


def _page_size(query: Query) -> int:
    given = query.get("maxResults", str(USUAL))
    if not given.isdecimal() or not 0 <= int(given[:9]) <= MOST:
        raise ApiRefusalError(
            "badRequest", f"Invalid value '{given[:40]}'. Values must be within the range: [0, {MOST}]"
        )
    return int(given)


def _thumbnails(video_id: str) -> Fields:
    base = f"https://i.ytimg.com/vi/{video_id}"
    return {
        name: {"url": f"{base}/{file}.jpg", "width": width, "height": height}
        for name, file, width, height in _THUMBNAILS
    }


def _varint(number: int) -> bytes:
    head, rest = number & 0x7F, number >> 7
    return bytes((head | 0x80,)) + _varint(rest) if rest else bytes((head,))


def _unvarint(data: bytes) -> int:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[:6]))


def _plain64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _unplain64(data: bytes) -> bytes:
    return base64.b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True)
