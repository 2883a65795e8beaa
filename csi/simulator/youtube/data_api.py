"""The calls of the simulated Data API, and the quotas that they use."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from csi import clock
from csi.simulator.youtube.api_errors import ApiRefusalError
from csi.simulator.youtube.response import ServedItem, SimulatedResponse, served_entries
from csi.simulator.youtube.world import ListEntry, PlaylistSlice, SimulatedChannel, SimulatedVideo, World

JSON = "application/json; charset=UTF-8"
MAX_RESULTS = 50
DEFAULT_RESULTS = 5

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
    """API units used on the current Pacific day; the day changes at midnight in Los Angeles."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._day: date | None = None
        self._used = 0

    def charge(self, now: float) -> bool:
        """Use one unit. False when the day's units are used up; then nothing is counted."""
        with self._lock:
            self._start_day(now)
            if self._used >= self.limit:
                return False
            self._used += 1
            return True

    def used(self, now: float) -> int:
        with self._lock:
            self._start_day(now)
            return self._used

    def _start_day(self, now: float) -> None:
        today = datetime.fromtimestamp(now, UTC).astimezone(_PACIFIC).date()
        if today != self._day:
            self._day, self._used = today, 0


def playlist_items(
    world: World, query: Query, now: float, *, short_pages: bool = False, as_owner: bool = False
) -> SimulatedResponse:
    """`playlistItems.list`: by `playlistId` (and `videoId`), or by `id`."""
    parts = _parts(query, ("id", "snippet", "contentDetails", "status"))
    if "id" in query:
        rows = []
        for item_id in _ids(query):
            try:
                decoded = base64.b64decode(item_id + "=" * (-len(item_id) % 4), validate=True).decode()
            except ValueError:  # neither base64 nor text
                continue
            if named := world.listing(decoded.partition(".")[0]):
                known = (entry for entry in named.entries if entry.item_id == item_id)
                rows += [_item_row(world, named, entry, parts) for entry in known]
        return _list_response("playlistItem", rows)
    ref = query.get("playlistId")
    if not ref:
        raise ApiRefusalError("missingRequiredParameter", "No filter selected. Expected one of: playlistId, id")
    if "videoId" in query:
        listing = _found(world.listing(ref))
        entries = [entry for entry in listing.entries if entry.video.id == query["videoId"]]
        rows = [_item_row(world, listing, entry, parts) for entry in entries]
        return _list_response("playlistItem", rows, per_page=DEFAULT_RESULTS)
    if ref in ("WL", "HL"):
        raise ApiRefusalError("watchLaterNotAccessible" if ref == "WL" else "watchHistoryNotAccessible")
    size, start = _page(query)
    on_page = size - 1 if short_pages and size > 1 else size
    listing = _found(world.listing(ref, start, on_page, as_owner=as_owner))
    return _list_response(
        "playlistItem",
        [_item_row(world, listing, entry, parts) for entry in listing.entries],
        total=listing.total,
        per_page=size,
        tokens=_tokens(start, on_page, listing.total),
        served=served_entries(listing, "playlist", listing.entries),
    )


def videos(world: World, query: Query, now: float) -> SimulatedResponse:
    """`videos.list`: an id that cannot be read is left out without an error."""
    known = ("id", "snippet", "contentDetails", "statistics", "status", "liveStreamingDetails")
    parts = _parts(query, known)
    found = [video for ref in _ids(query) if (video := world.video(ref)) and video.readable]
    return _list_response("video", [_video_row(world, video, parts, now) for video in found])


def video_statistics(world: World, query: Query, now: float) -> SimulatedResponse:
    """`videos:batchGetStats`: statistics and lengths, without titles. An id that cannot be read is left out."""
    parts = _parts(query, ("id", "snippet", "contentDetails", "statistics"))
    rows = []
    for ref in _ids(query):
        if (video := world.video(ref)) and video.readable:
            sections = {
                "snippet": {"publishTime": clock.iso(video.published_at)},
                "contentDetails": {
                    "duration": iso_duration(video.duration),
                    "durationMillis": str(video.duration * 1000),
                },
                "statistics": _video_statistics(video, world.growth.at(now)),
            }
            rows.append(_row("videoStats", video.id, parts, sections))
    return _list_response("videoStats", rows)


def channels(world: World, query: Query, now: float) -> SimulatedResponse:
    """`channels.list`. Without a match by id `items` is empty; without a match by handle `items` is absent."""
    parts = _parts(query, ("id", "snippet", "contentDetails", "statistics", "status"))
    by_handle = "forHandle" in query
    candidates = [world.by_handle(query["forHandle"])] if by_handle else map(world.channel, _ids(query))
    rows = [_channel_row(world, channel, parts, now) for channel in candidates if channel]
    return _list_response("channel", rows, per_page=DEFAULT_RESULTS, omit_empty=by_handle)


def playlists(world: World, query: Query, now: float) -> SimulatedResponse:
    """`playlists.list`, by ids or by the owner's channel."""
    parts = _parts(query, ("id", "snippet", "contentDetails", "status"))
    if "id" in query or "channelId" not in query:
        rows = [row for ref in _ids(query) if (row := _playlist_row(world, ref, parts))]
        return _list_response("playlist", rows, per_page=DEFAULT_RESULTS)
    size, start = _page(query)
    refs = [p.id for p in world.playlists() if p.channel_id == query["channelId"] and p.privacy == "public"]
    rows = [row for ref in refs[start : start + size] if (row := _playlist_row(world, ref, parts))]
    return _list_response("playlist", rows, total=len(refs), per_page=size, tokens=_tokens(start, size, len(refs)))


ENDPOINTS: dict[str, Callable[[World, Query, float], SimulatedResponse]] = {
    "playlistItems": playlist_items,
    "videos": videos,
    "channels": channels,
    "playlists": playlists,
    "batchGetStats": video_statistics,
}
CUSTOM_METHODS = {"batchGetStats": "videos:batchGetStats"}
"""Endpoints whose path is not their name."""
OWN_QUOTA = frozenset({"batchGetStats"})
"""Endpoints with a daily quota of their own."""


def page_token(offset: int, *, back: bool = False) -> str:
    """Opaque, and encoded as the real ones: two layers of base64 around a position."""
    inner = b"PT:" + _base64(b"\x08" + _varint(offset))
    return _base64(bytes((0x10, int(back), 0x1A, len(inner))) + inner).decode()


def page_offset(token: str) -> int:
    """The position in a token; ApiRefusalError("invalidPageToken") for a token that page_token did not make."""
    try:
        inner = _from_base64(token.encode())[4:]
        encoded = _from_base64(inner.removeprefix(b"PT:"))[1:]
    except ValueError:
        raise ApiRefusalError("invalidPageToken") from None
    offset = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(encoded[:6]))
    if token not in (page_token(offset), page_token(offset, back=True)):
        raise ApiRefusalError("invalidPageToken")
    return offset


def iso_duration(seconds: int) -> str:
    """`PT21M7S`, `PT1H2M`, `P1DT2H`; a duration of zero, as of a stream, is `P0D`."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    time_part = "".join(f"{value}{unit}" for value, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if value)
    date_part = f"{days}D" if days else ""
    return f"P{date_part}T{time_part}" if time_part else f"P{date_part or '0D'}"


def three_digits(number: int) -> int:
    """Rounded down to three significant digits, as YouTube does with subscriber counts."""
    unit = int(10 ** max(0, len(str(number)) - 3))
    return number // unit * unit


# Rows: one resource each, as far as its parts were requested


def _row(kind: str, ref: str, parts: frozenset[str], sections: Fields) -> Fields:
    """The requested sections of one resource; an empty section is left out."""
    row = {"kind": f"youtube#{kind}", "etag": "", "id": ref}
    row |= {name: section for name, section in sections.items() if name in parts and section}
    row["etag"] = _etag(row)
    return row


def _item_row(world: World, listing: PlaylistSlice, entry: ListEntry, parts: frozenset[str]) -> Fields:
    video, owner = entry.video, world.channel(entry.video.channel_id)
    snippet: Fields = {
        "publishedAt": clock.iso(entry.added_at),
        "channelId": listing.owner.id,
        "title": video.title,
        "description": video.description,
        "thumbnails": _thumbnails(video.id) if video.readable else {},
        "channelTitle": listing.owner.title,
        "playlistId": listing.ref,
        "position": entry.position,
        "resourceId": {"kind": "youtube#video", "videoId": video.id},
    }
    details = {"videoId": video.id}
    if video.readable:
        details["videoPublishedAt"] = clock.iso(video.published_at)
        if owner:
            snippet |= {"videoOwnerChannelTitle": owner.title, "videoOwnerChannelId": owner.id}
    elif video.privacy == "deleted":
        snippet |= {"title": "Deleted video", "description": "This video is unavailable."}
    else:
        snippet |= {"title": "Private video", "description": "This video is private."}
    # The real API answers "public" even for a deleted video; only the title shows that it was deleted.
    status = {"privacyStatus": "public" if video.privacy == "deleted" else video.privacy}
    return _row("playlistItem", entry.item_id, parts, {"snippet": snippet, "contentDetails": details, "status": status})


def _video_row(world: World, video: SimulatedVideo, parts: frozenset[str], now: float) -> Fields:
    owner, is_stream = world.channel(video.channel_id), video.kind in ("live", "upcoming")
    sections: Fields = {
        "snippet": {
            "publishedAt": clock.iso(video.published_at),
            "channelId": video.channel_id,
            "title": video.title,
            "description": video.description,
            "thumbnails": _thumbnails(video.id),
            "channelTitle": owner.title if owner else "",
            "categoryId": "28",
            "liveBroadcastContent": video.kind if is_stream else "none",
            "localized": {"title": video.title, "description": video.description},
            "defaultAudioLanguage": "en",
        },
        "contentDetails": {
            "duration": iso_duration(video.duration),
            "dimension": "2d",
            "definition": "hd",
            "caption": "true" if video.serial % 2 else "false",
            "licensedContent": False,
            "contentRating": {},
            "projection": "rectangular",
        },
        "status": {
            "uploadStatus": "uploaded" if is_stream else "processed",
            "privacyStatus": video.privacy,
            "license": "youtube",
            "embeddable": True,
            "publicStatsViewable": True,
            "madeForKids": False,
        },
        "statistics": _video_statistics(video, world.growth.at(now)),
        "liveStreamingDetails": _live_details(video),
    }
    return _row("video", video.id, parts, sections)


def _video_statistics(video: SimulatedVideo, now: float) -> Fields:
    """Numbers are strings; a hidden number is absent, never 0."""
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
    address = f"https://yt3.ggpht.com/simulated-{channel.id[2:]}"
    sizes = (("default", 88), ("medium", 240), ("high", 800))
    description = f"{channel.title} exists only in a simulation."
    sections: Fields = {
        "snippet": {
            "title": channel.title,
            "description": description,
            "customUrl": channel.handle,
            "publishedAt": clock.iso(channel.created_at),
            "thumbnails": {name: {"url": f"{address}=s{size}", "width": size, "height": size} for name, size in sizes},
            "localized": {"title": channel.title, "description": description},
            "country": "DE",
        },
        "contentDetails": {"relatedPlaylists": {"likes": "", "uploads": "UU" + channel.id[2:]}},
        # Counting reads every video of the channel: only on request.
        "statistics": _channel_statistics(world, channel, world.growth.at(now)) if "statistics" in parts else {},
        "status": {"privacyStatus": "public", "isLinked": True, "longUploadsStatus": "longUploadsUnspecified"},
    }
    return _row("channel", channel.id, parts, sections)


def _channel_statistics(world: World, channel: SimulatedChannel, now: float) -> Fields:
    public = world.newest(channel.id)
    numbers: Fields = {"viewCount": str(sum(video.views_at(now) for video in public))}
    if not channel.hides_subscribers:
        numbers["subscriberCount"] = str(three_digits(channel.subscribers_at(now)))
    return numbers | {"hiddenSubscriberCount": channel.hides_subscribers, "videoCount": str(len(public))}


def _playlist_row(world: World, ref: str, parts: frozenset[str]) -> Fields | None:
    listing = world.listing(ref, 0, 1)
    if listing is None:
        return None
    first, playlist = listing.entries[0].video if listing.entries else None, world.playlist(ref)
    snippet = {
        "publishedAt": clock.iso(listing.created_at),
        "channelId": listing.owner.id,
        "title": listing.title,
        "description": "",
        "thumbnails": _thumbnails(first.id) if first and first.readable else {},
        "channelTitle": listing.owner.title,
        "localized": {"title": listing.title, "description": ""},
    }
    status = {"privacyStatus": playlist.privacy if playlist else "public"}
    sections = {"snippet": snippet, "status": status, "contentDetails": {"itemCount": listing.total}}
    return _row("playlist", ref, parts, sections)


def _thumbnails(video_id: str) -> Fields:
    base = f"https://i.ytimg.com/vi/{video_id}"
    return {
        name: {"url": f"{base}/{file}.jpg", "width": width, "height": height}
        for name, file, width, height in _THUMBNAILS
    }


# Requests and responses


def _parts(query: Query, known: tuple[str, ...]) -> frozenset[str]:
    if not query.get("part"):
        raise ApiRefusalError("required")
    requested = frozenset(part.strip() for part in query["part"].split(","))
    if unknown := sorted(requested.difference(known)):
        raise ApiRefusalError("unknownPart", f"'{unknown[0]}'")
    return requested


def _ids(query: Query) -> list[str]:
    refs = [ref for ref in query.get("id", "").split(",") if ref]
    if not refs:
        raise ApiRefusalError("missingRequiredParameter", "No filter selected. Expected one of: id")
    if len(refs) > MAX_RESULTS:
        message = f"At most {MAX_RESULTS} ids can be requested at once; these are {len(refs)}."
        raise ApiRefusalError("badRequest", message)
    return list(dict.fromkeys(refs))


def _page(query: Query) -> tuple[int, int]:
    """The page size and the offset of the requested page."""
    given = query.get("maxResults", str(DEFAULT_RESULTS))
    if not given.isdecimal() or not 0 <= int(given[:9]) <= MAX_RESULTS:
        message = f"Invalid value '{given[:40]}'. Values must be within the range: [0, {MAX_RESULTS}]"
        raise ApiRefusalError("badRequest", message)
    return int(given), page_offset(query["pageToken"]) if query.get("pageToken") else 0


def _found(listing: PlaylistSlice | None) -> PlaylistSlice:
    if listing is None:
        raise ApiRefusalError("playlistNotFound")
    return listing


def _tokens(start: int, on_page: int, total: int) -> Fields:
    tokens: Fields = {}
    if on_page and start + on_page < total:
        tokens["nextPageToken"] = page_token(start + on_page)
    if start:
        tokens["prevPageToken"] = page_token(max(0, start - on_page), back=True)
    return tokens


def _list_response(
    kind: str,
    rows: list[Fields],
    *,
    total: int | None = None,
    per_page: int | None = None,
    tokens: Fields | None = None,
    served: tuple[ServedItem, ...] = (),
    omit_empty: bool = False,
) -> SimulatedResponse:
    kind = f"youtube#{kind}ListResponse"
    info = {"totalResults": len(rows) if total is None else total, "resultsPerPage": per_page or len(rows)}
    tag = _etag([kind, info, [row["etag"] for row in rows]])
    items = {} if omit_empty and not rows else {"items": rows}
    document = {"kind": kind, "etag": tag, **(tokens or {}), **items, "pageInfo": info}
    return SimulatedResponse(200, _json(document), JSON, served=served, etag=tag)


def _etag(value: object) -> str:
    return _base64(hashlib.sha1(_json(value), usedforsecurity=False).digest()).decode()


def _json(value: object) -> bytes:
    """Compact JSON; a lone surrogate, which UTF-8 cannot encode, is written as its escape."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _varint(number: int) -> bytes:
    head, rest = number & 0x7F, number >> 7
    return bytes((head | 0x80,)) + _varint(rest) if rest else bytes((head,))


def _base64(data: bytes) -> bytes:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _from_base64(data: bytes) -> bytes:
    return base64.b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True)
