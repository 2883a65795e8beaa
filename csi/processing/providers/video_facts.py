"""What others know of a video: the ingester's catalogue over its admin API, and YouTube's Data API. Reads only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol
from urllib.parse import quote, urlencode

from csi import clock
from csi.config.durations import duration_seconds
from csi.errors import NetError
from csi.logs import log
from csi.net import HttpLimits, Net
from csi.processing.sanitize import plain_line

Broadcast = Literal["none", "upcoming", "live"]
LIMITS = HttpLimits(total=10.0, connect=3.0, max_body=2 * 1024 * 1024, max_redirects=0)
MAX_SECONDS = 366 * 86_400
MAX_COUNT = 2**63 - 1


@dataclass(frozen=True)
class VideoFacts:
    """None: not known. `broadcast` `none`: it is no stream, or the stream is over."""

    duration: float | None = None
    view_count: int | None = None
    title: str | None = None
    channel_title: str | None = None
    broadcast: Broadcast | None = None
    starts_at: float | None = None
    """When a stream that has not begun is to begin."""
    published_at: float | None = None
    channel_id: str | None = None
    has_captions: bool | None = None
    """Whether its owner uploaded captions; False says nothing about captions that YouTube made."""

    def filled_from(self, other: "VideoFacts") -> "VideoFacts":
        names = [one.name for one in fields(self)]
        values = {name: getattr(self, name) for name in names}
        return VideoFacts(**{name: getattr(other, name) if values[name] is None else values[name] for name in names})


class FactSource(Protocol):
    """None: it does not know the video, or cannot be asked now."""

    def find(self, video_id: str, *, is_stream: bool) -> VideoFacts | None: ...


@dataclass(frozen=True)
class CatalogueFacts:
    """The ingester's catalogue (`ingester_url`): lengths and views, without a request to YouTube."""

    net: Net
    url: str
    token: str = field(repr=False)

    def find(self, video_id: str, *, is_stream: bool) -> VideoFacts | None:
        row = _get(self.net, f"{self.url}/admin/videos/{quote(video_id, safe='')}", self.token)
        if row is None:
            return None
        channel = plain_line(row.get("channel_id"), 200)
        owner = _get(self.net, f"{self.url}/admin/channels/{quote(channel, safe='')}", self.token) if channel else None
        return VideoFacts(
            duration=_number(row.get("duration"), MAX_SECONDS) or None,
            view_count=_count(row.get("view_count")),
            title=plain_line(row.get("title")) or None,
            channel_title=plain_line((owner or {}).get("title"), 200) or None,
            published_at=_moment(row.get("published_at")),
            channel_id=channel or None,
            has_captions=row.get("caption_available") if isinstance(row.get("caption_available"), bool) else None,
        )


@dataclass(frozen=True)
class YouTubeFacts:
    """YouTube's Data API (`facts.youtube_key_env`): one unit a video. Lengths come from `videos:batchGetStats`, which
    has a bucket of units of its own; streams, and everything where that method is refused, from `videos.list`."""

    net: Net
    url: str
    key: str = field(repr=False)
    now: Callable[[], float] = clock.now

    def find(self, video_id: str, *, is_stream: bool) -> VideoFacts | None:
        item = None if is_stream else self._item(":batchGetStats", "statistics,contentDetails", video_id)
        if item is None:
            parts = "snippet,contentDetails,statistics,liveStreamingDetails"
            item = self._item("", parts, video_id)
        return None if item is None else read_facts(item)

    def _item(self, method: str, parts: str, video_id: str) -> Mapping[str, Any] | None:
        query = urlencode({"part": parts, "id": video_id})
        answer = _get(self.net, f"{self.url}/videos{method}?{query}", None, {"X-Goog-Api-Key": self.key})
        items = (answer or {}).get("items")
        found = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
        return next((one for one in found if one.get("id") == video_id), None)


def read_facts(item: Mapping[str, Any]) -> VideoFacts:
    """The facts in an item of `videos.list` or `videos:batchGetStats`; what is not usable is left out."""
    snippet, details = _part(item, "snippet"), _part(item, "contentDetails")
    stream = _part(item, "liveStreamingDetails")
    state = snippet.get("liveBroadcastContent")
    starts_at = _moment(stream.get("scheduledStartTime"))
    seconds = duration_seconds(details.get("duration"))
    return VideoFacts(
        duration=float(seconds) if seconds and seconds <= MAX_SECONDS else None,
        view_count=_count(_part(item, "statistics").get("viewCount")),
        title=plain_line(snippet.get("title")) or None,
        channel_title=plain_line(snippet.get("channelTitle"), 200) or None,
        broadcast=state if state in ("none", "upcoming", "live") else None,
        starts_at=starts_at,
        published_at=_moment(snippet.get("publishedAt")),
        channel_id=plain_line(snippet.get("channelId"), 200) or None,
        has_captions={"true": True, "false": False}.get(str(details.get("caption"))),
    )


def _get(net: Net, url: str, token: str | None, headers: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    sent = {"Accept": "application/json", **(headers or {})} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        answer = net.get(url, headers=sent, limits=LIMITS)
    except NetError as error:
        log.info("facts of a video cannot be looked up", error=str(error))
        return None
    if answer.status != 200:
        log.info("facts of a video are not answered", host=url.split("/")[2], status=answer.status)
        return None
    return answer.json_object()


def _moment(value: Any) -> float | None:
    try:
        return clock.parse(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _part(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: Any, most: int) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= most else None


def _count(value: Any) -> int | None:
    """The API writes counters as strings."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    number = _number(value, MAX_COUNT)
    return None if number is None else int(value)
