"""Uploads of a channel, from entries of its feed or items of its uploads playlist: reading the playlist, key, subject.

An upload has the same dedupe key and event_id whichever of the two listed it, so it becomes one event.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from csi import clock
from csi.adapters import response_headers
from csi.adapters.base import Position, RawEvent, ReadResult, Tools
from csi.adapters.youtube import atom, video_fields
from csi.adapters.youtube.api import ApiItem, ApiPage, DataApi, is_readable, part_of, thumbnail_of, video_of
from csi.adapters.youtube.enrich import details_of
from csi.errors import MalformedItem, SourceError
from csi.ingester.text import TEXT_CHARS

SOURCE = "youtube_channel_rss"
MARK = "api"
DAY = 86_400.0
MAX_GAP_PAGES = 10
SETTLED_SECONDS = 3600.0
"""Below this age zero views are no sign of an upcoming stream: a new video has none at first, either."""


@dataclass(frozen=True)
class ChannelUpload:
    """The fields that a feed entry and a playlist item have in common."""

    video: str
    channel: str | None
    title: Any
    published: Any
    description: Any
    thumbnail: Any
    kind: str
    channel_title: Any = None


def from_feed(entry: atom.FeedEntry, channel: str, now: float) -> RawEvent:
    """The item for an entry of the feed of `channel`."""
    capped = {name: text[:TEXT_CHARS] for name, text in entry.items()}
    # A feed does not mark upcoming streams: an entry with likes and without views, not new, is taken for one.
    with suppress(ValueError, OverflowError):
        settled = now - clock.parse(capped.get("published", "")) >= SETTLED_SECONDS
        if settled and capped.get("views") == "0" and capped.get("likes", "0").strip("0") != "":
            capped["kind"] = "upcoming"
    payload = {"entry": capped, "channel_id": channel}
    return RawEvent(SOURCE, "channel_new_upload", payload, capped.get("published", ""))


def from_playlist(item: ApiItem, channel: str) -> RawEvent:
    """The item for an item of the uploads playlist of `channel`."""
    published = str(part_of(item, "contentDetails").get("videoPublishedAt", ""))
    return RawEvent(SOURCE, "channel_new_upload_api", {"item": item, "channel_id": channel}, published)


def upload_of(raw: RawEvent) -> ChannelUpload:
    """The fields of an item. Raises MalformedItem when it has no video id."""
    item, entry = raw.payload.get("item"), raw.payload.get("entry")
    if isinstance(item, dict):
        snippet = part_of(item, "snippet")
        owner = video_fields.valid_id(snippet.get("videoOwnerChannelId"))
        return ChannelUpload(
            video=video_fields.video_id(video_of(item)),
            channel=owner or video_fields.valid_id(snippet.get("channelId")),
            title=snippet.get("title"),
            published=part_of(item, "contentDetails").get("videoPublishedAt"),
            description=snippet.get("description"),
            thumbnail=thumbnail_of(item),
            kind="short" if raw.payload.get("short") is True else "video",
            channel_title=snippet.get("videoOwnerChannelTitle") or snippet.get("channelTitle"),
        )
    if isinstance(entry, dict):
        short = "/shorts/" in str(entry.get("link", ""))
        return ChannelUpload(
            video=video_fields.video_id(entry.get("yt_videoid")),
            channel=video_fields.valid_id(entry.get("yt_channelid")),
            title=entry.get("title"),
            published=entry.get("published"),
            description=entry.get("summary") or entry.get("description"),
            thumbnail=entry.get("thumbnail_url"),
            kind="short" if short else "upcoming" if entry.get("kind") == "upcoming" else "video",
            channel_title=entry.get("author"),
        )
    raise MalformedItem("the item is neither a feed entry nor one of an uploads list")


def watched_channel(raw: RawEvent) -> str | None:
    """The id of the channel or playlist whose watch listed this item."""
    return video_fields.valid_id(raw.payload.get("channel_id"))


def subject_of(raw: RawEvent, upload: ChannelUpload) -> dict[str, Any]:
    """The event's subject. Raises MalformedItem when a required field is missing."""
    watched, details, kind = watched_channel(raw), details_of(raw), upload.kind
    is_channel = watched is not None and watched.startswith("UC")
    # YouTube has written channel ids without their `UC` at times; the feed of a playlist may list several channels.
    if is_channel and upload.channel is not None and watched not in (upload.channel, f"UC{upload.channel}"):
        raise MalformedItem("the item belongs to another channel than the watched one")
    if details:  # the API knows better than the feed whether it is a stream; it does not know shorts
        kind = details.live or ("short" if kind == "short" else "video")
    return video_fields.subject(
        upload.video,
        watched if is_channel else upload.channel or watched,
        title=upload.title,
        published_at=video_fields.timestamp(raw.occurred_at or upload.published, "published"),
        description=upload.description,
        thumbnail=upload.thumbnail,
        kind=kind,
        duration=details.duration if details else None,
        channel_title=upload.channel_title,
    )


def channel_title(items: Sequence[RawEvent], channel: str) -> str | None:
    """The name of the watched channel, as its newest uploads have it. None: they have none, or it is a playlist."""
    uploads = [upload_of(raw) for raw in items if key_or_none(raw)] if channel.startswith("UC") else []
    return next((title for one in uploads if isinstance(title := one.channel_title, str) and title.strip()), None)


def video_key(video: str) -> str:
    """The dedupe key of a video, the same whichever channel lists it."""
    return f"youtube:video:{video}"


def dedupe_key(raw: RawEvent) -> str:
    """The key of an item. Raises MalformedItem when it has no video id.

    An item that cannot become an event has a key of its own. The video's key stays free: a later, complete item of the
    video is then new, and so is the same video listed by the channel that owns it.
    """
    upload = upload_of(raw)
    try:
        subject_of(raw, upload)
    except MalformedItem:
        return f"youtube:malformed:{upload.video}:{watched_channel(raw)}"
    return video_key(upload.video)


def key_or_none(raw: RawEvent) -> str | None:
    try:
        return dedupe_key(raw)
    except MalformedItem:
        return None


def published_at(raw: RawEvent) -> float:
    """Infinity for an unreadable date: the item then counts as new and becomes a dead letter with its payload."""
    try:
        return clock.parse(raw.occurred_at)
    except (ValueError, OverflowError):
        return float("inf")


def is_stream(raw: RawEvent) -> bool:
    """Whether the item is a live or upcoming stream, as far as feed and API show it."""
    details = details_of(raw)
    return details.live is not None if details else part_of(raw.payload, "entry").get("kind") == "upcoming"


class UploadsPlaylist:
    """The uploads playlists (`UU…`) of all channels of one source. Threads may share it."""

    def __init__(self, api: DataApi, tools: Tools) -> None:
        self._api = api
        self._tools = tools

    def read_newest(self, position: Position) -> ReadResult:
        """The newest 50 uploads, for a unit."""
        now, read_before = self._tools.now(), (position.etag or "").startswith(f"{MARK}:")
        page = self.first_page(position, etag=response_headers.validator_to_send(position.etag, MARK, now))
        if page is None:
            return ReadResult(etag=position.etag, unchanged=True)
        # A watch that was read by its feed before knows only 15 of the 50: older uploads are not new.
        items = self.recent(page, position, None if read_before else position.last_success_at)
        return ReadResult(
            items=self.mark_shorts(items, position),
            etag=response_headers.stored_validator(page.etag or "", MARK, now),
            unreadable=len(page.items) - sum(map(is_readable, page.items)),
            window_full=page.next is not None,
        )

    def first_page(self, position: Position, *, etag: str | None = None) -> ApiPage | None:
        """None: unchanged since `etag`."""
        if not position.ref.startswith("UC"):
            raise SourceError("only a channel id (UC…) can be read through the API", kind="denied")
        try:
            return self._api.items("UU" + position.ref.removeprefix("UC"), etag=etag)
        except SourceError as error:
            # The API also answers "playlist not found" for a channel that has no videos.
            if error.kind == "missing" and self._api.exists("channels", position.ref) == "exists":
                return ApiPage(())
            raise

    def recent(self, page: ApiPage, position: Position, since: float | None) -> list[RawEvent]:
        """The readable items of a page; with `since`, those published at most a day before it."""
        found = [from_playlist(item, position.ref) for item in page.items if is_readable(item)]
        return [raw for raw in found if since is None or published_at(raw) >= since - DAY]

    def mark_shorts(self, items: list[RawEvent], position: Position) -> tuple[RawEvent, ...]:
        """The same items with shorts marked, for a unit: the uploads playlist does not tell shorts from videos, but the
        playlist `UUSH…` lists the channel's shorts."""
        keys = {key for raw in items if (key := key_or_none(raw)) is not None}
        if position.emits == 0 or keys <= position.known(sorted(keys)) or not self._tools.spare(1):
            return tuple(items)
        try:
            page = self._api.items("UUSH" + position.ref.removeprefix("UC"))
        except SourceError:  # in most cases the channel has no shorts
            return tuple(items)
        shorts = {video_fields.valid_id(video_of(item)) for item in (page.items if page else ())} - {None}
        return tuple(
            replace(raw, payload={**raw.payload, "short": True})
            if video_fields.valid_id(video_of(raw.payload["item"])) in shorts
            else raw
            for raw in items
        )

    def walk_back(self, position: Position, since: float | None) -> ReadResult:
        """Unknown uploads, newest first, back to one that was known at `since` or published a day before it."""
        found: list[RawEvent] = []
        page, pages = self.first_page(position), 1
        while page is not None:
            new, reached = _unknown_items(page, position, since)
            found += new
            if reached or not page.next or pages >= MAX_GAP_PAGES:
                break
            position.progress()
            page, pages = self._api.items("UU" + position.ref.removeprefix("UC"), page.next), pages + 1
        more = page is not None and not reached and page.next is not None
        return ReadResult(self.mark_shorts(found, position), pages=pages, window_full=more)


def _unknown_items(page: ApiPage, position: Position, since: float | None) -> tuple[list[RawEvent], bool]:
    """The unknown items of a page, and whether the page reaches back to `since`.

    A known item published after `since` does not end the walk: it was stored after the last successful read, so it does
    not prove that older uploads are known.
    """
    items = [from_playlist(item, position.ref) for item in page.items if is_readable(item)]
    keys = [key_or_none(raw) or "" for raw in items]
    known, new = position.known(keys), list[RawEvent]()
    for key, raw in zip(keys, items, strict=True):
        old = since is not None and published_at(raw) < since
        if (key in known and (old or since is None)) or (since is not None and published_at(raw) < since - DAY):
            return new, True
        if key not in known:
            new.append(raw)
    return new, False
