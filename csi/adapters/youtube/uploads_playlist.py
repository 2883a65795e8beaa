"""Read the uploads playlist of a channel through the Data API: its newest page, and back to the last known upload."""

from dataclasses import replace

from csi.adapters import response_headers
from csi.adapters.base import Position, RawEvent, ReadResult, Tools
from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api import ApiPage, DataApi, is_readable, video_of
from csi.adapters.youtube.channel_upload import from_playlist, key_or_none, published_at
from csi.errors import SourceError

MARK = "api"
DAY = 86_400.0
MAX_GAP_PAGES = 10


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
            return self._api.items(_list_of(position.ref, "UU"), etag=etag)
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
            page = self._api.items(_list_of(position.ref, "UUSH"))
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
            page, pages = self._api.items(_list_of(position.ref, "UU"), page.next), pages + 1
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


def _list_of(channel: str, prefix: str) -> str:
    return prefix + channel.removeprefix("UC")
