"""From a handle, a user name or a video to its channel: one call of the Data API, one unit."""

from dataclasses import dataclass

from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api import ApiItem, DataApi, part_of
from csi.errors import SourceError
from csi.ingester.text import TITLE_CHARS, clean


@dataclass(frozen=True)
class ChannelMatch:
    """A channel, and what it cost to find it."""

    channel_id: str
    title: str | None
    units: int = 1


def find_channel(api: DataApi, kind: str, value: str) -> ChannelMatch | None:
    """None: there is no such handle, user or video. `value` was checked by csi.adapters.youtube.references."""
    if kind == "video":
        return _owner(_first(api, "videos", {"part": "snippet", "id": value}))
    query = "forUsername" if kind == "user" else "forHandle"
    return _channel(_first(api, "channels", {"part": "snippet", query: value.removeprefix("@")}))


def _first(api: DataApi, resource: str, query: dict[str, str | int]) -> ApiItem | None:
    page = api.page(resource, query)
    return page.items[0] if page and page.items else None


def _channel(row: ApiItem | None) -> ChannelMatch | None:
    return _found(row.get("id"), part_of(row, "snippet").get("title")) if row else None


def _owner(row: ApiItem | None) -> ChannelMatch | None:
    snippet = part_of(row, "snippet") if row else {}
    return _found(snippet.get("channelId"), snippet.get("channelTitle")) if row else None


def _found(channel: object, title: object) -> ChannelMatch:
    ref = video_fields.valid_id(channel)
    if ref is None:
        raise SourceError("the API's answer names no channel", kind="malformed")
    return ChannelMatch(ref, clean(title, TITLE_CHARS) if isinstance(title, str) and title else None)
