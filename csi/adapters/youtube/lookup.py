"""Find the channel of a handle, a user name or a video: one call of the Data API, one unit."""

from dataclasses import dataclass

from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api import DataApi, part_of
from csi.errors import SourceError
from csi.ingester.text import TITLE_CHARS, clean


@dataclass(frozen=True)
class ChannelMatch:
    """The channel of a reference, and the API units that the lookup cost."""

    channel_id: str
    title: str | None
    units: int = 1


def find_channel(api: DataApi, kind: str, value: str) -> ChannelMatch | None:
    """None: there is no such handle, user or video. `value` was checked by csi.adapters.youtube.references."""
    if kind == "video":
        page = api.page("videos", {"part": "snippet", "id": value})
    else:
        query = "forUsername" if kind == "user" else "forHandle"
        page = api.page("channels", {"part": "snippet", query: value.removeprefix("@")})
    if not page or not page.items:
        return None
    row, snippet = page.items[0], part_of(page.items[0], "snippet")
    ref = video_fields.valid_id(snippet.get("channelId") if kind == "video" else row.get("id"))
    title = snippet.get("channelTitle" if kind == "video" else "title")
    if ref is None:
        raise SourceError("the API's response has no channel id", kind="malformed")
    return ChannelMatch(ref, clean(title, TITLE_CHARS) if isinstance(title, str) and title else None)
