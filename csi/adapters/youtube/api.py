"""The list calls of the YouTube Data API, each booked against the quota before it is sent.

The key or the OAuth token is sent in a header: a URL ends up in the logs of proxies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self
from urllib.parse import urlencode, urlsplit

from pydantic import Field, model_validator

from csi.adapters import response_headers
from csi.adapters.base import Existence, StreamState, Tools
from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api_errors import api_json
from csi.adapters.youtube.oauth import AccessTokens, OAuthSettings
from csi.config.durations import duration_seconds
from csi.config.setting_types import SourceUrl, VariableName
from csi.config.source_settings import SourceSettings
from csi.errors import NetError, SourceError
from csi.ingester.text import TITLE_CHARS, clean
from csi.net import HttpResponse

BATCH = 50
"""Ids in one call, and items in one page: the API's maximum."""

VIDEO_PARTS = "snippet,contentDetails,liveStreamingDetails"
ITEM_PARTS = "snippet,contentDetails,status"
PLACEHOLDERS = ("Private video", "Deleted video")
MAX_TOKEN = 1_000
_SURPLUS = 4 * BATCH

ApiItem = dict[str, Any]


class ApiSettings(SourceSettings):
    """Settings of every source that can use the Data API."""

    quota_limit: int = Field(10_000, gt=0, description="API units a Pacific day, for all sources together")
    api_key_env: VariableName = Field("YOUTUBE_API_KEY", description="Variable that holds the API key")
    api_base_url: SourceUrl = Field(
        "https://www.googleapis.com/youtube/v3", description="URL of the Data API or of a stand-in"
    )
    oauth: OAuthSettings = Field(OAuthSettings(), description="A refresh token instead of the key")
    live_started: bool = Field(
        False, description="With enrich: a second event, live_started, when an announced stream or premiere begins"
    )
    dedupe_across: Literal["video"] | None = Field(
        None, description="video: a video in several watches of the sources with this key is sent once"
    )

    @model_validator(mode="after")
    def _starts_can_be_seen(self) -> Self:
        if self.live_started and not getattr(self, "enrich", False):
            raise ValueError("live_started needs enrich: true, which tells announced streams from videos")
        return self


@dataclass(frozen=True)
class ApiPage:
    """One page of a list response."""

    items: tuple[ApiItem, ...]
    next: str | None = None
    total: int | None = None
    etag: str | None = None


@dataclass(frozen=True)
class VideoDetails:
    """Length of a video, live state and times of a stream, from `videos.list`."""

    duration: int | None = None
    live: str | None = None
    """`live` or `upcoming`. None: not a stream, or a stream that ended."""
    scheduled_at: float | None = None
    started_at: float | None = None


class DataApi:
    """The Data API with the settings of one source. Threads may share it."""

    def __init__(self, settings: ApiSettings, tools: Tools, *, enabled: bool = True) -> None:
        self._settings = settings
        self._enabled = enabled
        self._tools = tools
        self._tokens = AccessTokens(settings.oauth, tools)

    def with_tools(self, **changes: Any) -> "DataApi":
        """The same API with other tools, such as a budget of its own."""
        return DataApi(self._settings, replace(self._tools, **changes), enabled=self._enabled)

    @property
    def usable(self) -> bool:
        """Whether a key or OAuth is set. Whether the API accepts it is not checked."""
        has_key = bool(self._tools.secret(self._settings.api_key_env))
        return self._enabled and (self._tokens.configured or has_key)

    @property
    def lacks(self) -> str | None:
        """The settings that are missing for API calls. None: no setting is missing."""
        if self._tokens.configured:
            return ", ".join(self._tokens.missing) or None
        if not self._enabled:
            return "api_base_url, because the feed is a stand-in on this machine"
        return None if self.usable else f"{self._settings.api_key_env}, or the three variables of oauth"

    @property
    def host(self) -> str:
        return urlsplit(self._settings.api_base_url).netloc

    def items(self, playlist: str, token: str | None = None, *, etag: str | None = None) -> ApiPage | None:
        """One page of a playlist. None: unchanged since `etag`. `token`: the page's token, from the page before."""
        query: dict[str, str | int] = {"part": ITEM_PARTS, "playlistId": playlist, "maxResults": BATCH}
        return self.page("playlistItems", query | ({"pageToken": token} if token else {}), etag=etag)

    def page(self, resource: str, query: Mapping[str, str | int], *, etag: str | None = None) -> ApiPage | None:
        """One call, one unit. None: unchanged since `etag` (a 304 costs the same unit)."""
        if not self._enabled:
            raise SourceError("the feed is a stand-in on this machine; set api_base_url, too", kind="auth")
        name = "oauth" if self._tokens.configured else self._settings.api_key_env
        try:
            url = f"{self._settings.api_base_url.rstrip('/')}/{resource}?{urlencode(query)}"
            answer = self._call(url, {"If-None-Match": etag} if etag else {})
            if answer.status == 304 and not etag:
                raise SourceError("the API answered 304 to a request without a condition", kind="malformed")
            found: ApiPage | None = None
            if answer.status != 304:
                found = read_page(api_json(answer, key_env=self._settings.api_key_env, now=self._tools.now()))
        except SourceError as error:
            if error.kind == "quota":
                self._tools.exhaust()
            if error.kind == "auth":
                self._tools.note_access(name, str(error))
            raise
        self._tools.note_access(name, None)
        return found

    def _call(self, url: str, condition: dict[str, str]) -> HttpResponse:
        if self._tokens.configured:
            token = self._tokens.token()
            answer = self._get(url, {"Authorization": f"Bearer {token}"} | condition)
            if answer.status != 401:
                return answer
            # A token can be revoked before it expires: one new token is tried, booked as a call of its own.
            token = self._tokens.token(refused=token)
            return self._get(url, {"Authorization": f"Bearer {token}"} | condition)
        key = self._tools.secret(self._settings.api_key_env)
        if not key:
            raise SourceError(f"the API needs a key; set {self._settings.api_key_env}", kind="auth")
        return self._get(url, {"X-Goog-Api-Key": key} | condition)

    def _get(self, url: str, headers: dict[str, str]) -> HttpResponse:
        self._tools.charge(1)
        try:
            return self._tools.net.get(url, headers=headers)
        except NetError as error:
            raise response_headers.unreachable(error, "the API could not be read") from error

    def rows(self, resource: str, part: str, ids: Sequence[str]) -> Iterator[ApiItem]:
        """The rows of these ids, 50 per unit. The API omits unknown, private and deleted ids without an error."""
        valid = [name for name in dict.fromkeys(ids) if video_fields.valid_id(name)]
        for start in range(0, len(valid), BATCH):
            names = ",".join(valid[start : start + BATCH])
            page = self.page(resource, {"part": part, "id": names, "maxResults": BATCH})
            yield from page.items if page else ()

    def videos(self, ids: Sequence[str]) -> dict[str, VideoDetails]:
        """Length and live state of at most 50 videos. Without maxResults: `videos.list` rejects it together with id."""
        page = self.page("videos", {"part": VIDEO_PARTS, "id": ",".join(ids)})
        details = {}
        for item in page.items if page else ():
            live, times = part_of(item, "snippet").get("liveBroadcastContent"), part_of(item, "liveStreamingDetails")
            details[str(item.get("id"))] = VideoDetails(
                duration=duration_seconds(part_of(item, "contentDetails").get("duration")),
                live=live if live in video_fields.STREAMS else None,
                scheduled_at=video_fields.moment(times.get("scheduledStartTime")),
                started_at=video_fields.moment(times.get("actualStartTime")),
            )
        return details

    def icons(self, resource: str, ids: Sequence[str]) -> dict[str, str]:
        """Addresses of the icons of at most 50 channels or playlists, for one unit."""
        return {str(row.get("id")): icon for row in self.rows(resource, "snippet", ids) if (icon := thumbnail_of(row))}

    def stream_states(self, videos: Sequence[str]) -> dict[str, StreamState]:
        return {
            name: StreamState(found.live == "upcoming", found.scheduled_at, found.started_at)
            for name, found in self.videos(videos).items()
        }

    def exists(self, resource: str, ref: str) -> Existence:
        """Whether the API lists this channel or playlist. A private playlist of another account is `missing`, too."""
        if not self.usable or video_fields.valid_id(ref) is None:
            return "unknown"
        try:
            found = [row for row in self.rows(resource, "id", [ref]) if row.get("id") == ref]
        except SourceError:
            return "unknown"
        return "exists" if found else "missing"

    def find_channel(self, kind: str, value: str) -> tuple[str, str | None] | None:
        """Id and title of the channel of a handle, a user name or a video, for one unit. None: there is no such one.

        `value` was checked by csi.adapters.youtube.references.
        """
        if kind == "video":
            page = self.page("videos", {"part": "snippet", "id": value})
        else:
            query = "forUsername" if kind == "user" else "forHandle"
            page = self.page("channels", {"part": "snippet", query: value.removeprefix("@")})
        if not page or not page.items:
            return None
        row, snippet = page.items[0], part_of(page.items[0], "snippet")
        ref = video_fields.valid_id(snippet.get("channelId") if kind == "video" else row.get("id"))
        title = snippet.get("channelTitle" if kind == "video" else "title")
        if ref is None:
            raise SourceError("the API's response has no channel id", kind="malformed")
        return ref, clean(title, TITLE_CHARS) if isinstance(title, str) and title else None


def part_of(item: ApiItem, name: str) -> ApiItem:
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def is_readable(item: ApiItem) -> bool:
    """False for private and deleted videos, which stay in a playlist without their date, and for an item without a
    snippet. They are not remembered as seen, so an item that becomes readable later is new then."""
    snippet, details = part_of(item, "snippet"), part_of(item, "contentDetails")
    if not snippet or part_of(item, "status").get("privacyStatus") == "private":
        return False
    if "contentDetails" in item:
        return bool(details.get("videoPublishedAt"))
    return snippet.get("title") not in PLACEHOLDERS


def video_of(item: ApiItem) -> Any:
    named = part_of(part_of(item, "snippet"), "resourceId").get("videoId")
    return named or part_of(item, "contentDetails").get("videoId")


def thumbnail_of(item: ApiItem) -> Any:
    sizes = part_of(part_of(item, "snippet"), "thumbnails")
    chosen = sizes.get("default") or next(iter(sizes.values()), None)
    return chosen.get("url") if isinstance(chosen, dict) else None


def read_page(body: ApiItem) -> ApiPage:
    """A list response as a page. Raises SourceError("malformed") for any other JSON."""
    items, token, etag = body.get("items", []), body.get("nextPageToken"), body.get("etag")
    total = part_of(body, "pageInfo").get("totalResults")
    usable_token = token is None or (isinstance(token, str) and len(token) <= MAX_TOKEN and token.isascii())
    if not isinstance(items, list) or len(items) > _SURPLUS or not usable_token:
        raise SourceError("the API's response is not a page of a list", kind="malformed")
    return ApiPage(
        items=tuple(item for item in items if isinstance(item, dict)),
        next=token or None,
        total=total if isinstance(total, int) else None,
        # If-None-Match takes the etag of the body as it stands there, with or without quotes.
        etag=etag if isinstance(etag, str) and response_headers.is_sendable(etag) else None,
    )
