"""The Data API's list calls: each booked before it is made, with the key or an OAuth token in a header."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from pydantic import Field

from csi.adapters import response_headers
from csi.adapters.base import Existence, Tools
from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api_errors import api_json
from csi.adapters.youtube.oauth import AccessTokens, OAuthSettings
from csi.config.settings import SourceSettings, SourceUrl, VariableName
from csi.errors import NetError, SourceError
from csi.net import HttpResponse

BATCH = 50
"""Ids in one call, and items in one page: the API's most."""

ITEM_PARTS = "snippet,contentDetails,status"
PLACEHOLDERS = ("Private video", "Deleted video")
MAX_TOKEN = 1_000
_DURATION = re.compile(
    r"P(?:(\d{1,6})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})(?:\.\d+)?S)?)?", re.ASCII
)
_SURPLUS = 4 * BATCH

ApiItem = dict[str, Any]


class ApiSettings(SourceSettings):
    """What every source has that may use the Data API."""

    quota_limit: int = Field(10_000, gt=0, description="API units a Pacific day, for all sources together")
    api_key_env: VariableName = Field("YOUTUBE_API_KEY", description="Variable that holds the API key")
    api_base_url: SourceUrl = Field(
        "https://www.googleapis.com/youtube/v3", description="The Data API, or a stand-in for it"
    )
    oauth: OAuthSettings = Field(OAuthSettings(), description="A refresh token instead of the key")

    @property
    def budget_units(self) -> int:
        return self.quota_limit


@dataclass(frozen=True)
class ApiPage:
    """One page of a list."""

    items: tuple[ApiItem, ...]
    next: str | None = None
    total: int | None = None
    etag: str | None = None


@dataclass(frozen=True)
class VideoDetails:
    """What `videos.list` tells of a video: its length, and whether it is a stream that runs or is to come."""

    duration: int | None = None
    live: str | None = None


class DataApi:
    """One source's way to the API. Threads may share it."""

    def __init__(self, settings: ApiSettings, tools: Tools, *, enabled: bool = True) -> None:
        self._settings = settings
        self._enabled = enabled
        self._tools = tools
        self._tokens = AccessTokens(settings.oauth, tools)

    @property
    def usable(self) -> bool:
        """A key or OAuth is set; whether it is good is another matter."""
        return self._enabled and self._may_call()

    def _may_call(self) -> bool:
        return self._tokens.configured or bool(self._tools.secret(self._settings.api_key_env))

    @property
    def lacks(self) -> str | None:
        """What has to be set before the API can be asked. None: nothing."""
        if self._tokens.configured:
            return ", ".join(self._tokens.missing) or None
        if not self._enabled:
            return "api_base_url, because the feed is a stand-in on this machine"
        return None if self.usable else f"{self._settings.api_key_env}, or the three variables of oauth"

    @property
    def host(self) -> str:
        return urlsplit(self._settings.api_base_url).netloc

    def items(self, playlist: str, token: str | None = None, *, etag: str | None = None) -> ApiPage | None:
        """One page of a playlist. None: unchanged since `etag`."""
        query: dict[str, str | int] = {"part": ITEM_PARTS, "playlistId": playlist, "maxResults": BATCH}
        return self.page("playlistItems", query | ({"pageToken": token} if token else {}), etag=etag)

    def page(self, resource: str, query: Mapping[str, str | int], *, etag: str | None = None) -> ApiPage | None:
        """One call, one unit. None: unchanged since `etag` (which costs the same unit)."""
        answer = self._call(resource, query, etag)
        if answer.status == 304:
            if not etag:
                raise SourceError("the API answered 304 to a request without a condition", kind="malformed")
            return None
        try:
            body = api_json(answer, key_env=self._settings.api_key_env, now=self._tools.now())
        except SourceError as error:
            if error.kind == "quota":
                self._tools.exhaust()
            raise
        return _page(body)

    def _call(self, resource: str, query: Mapping[str, str | int], etag: str | None) -> HttpResponse:
        if not self._enabled:
            raise SourceError("the feed is a stand-in on this machine; set api_base_url, too", kind="auth")
        url = f"{self._settings.api_base_url.rstrip('/')}/{resource}?{urlencode(query)}"
        condition = {"If-None-Match": etag} if etag else {}
        if not self._tokens.configured:
            return self._get(url, self._key() | condition)
        token = self._tokens.token()
        answer = self._get(url, {"Authorization": f"Bearer {token}"} | condition)
        if answer.status == 401:
            token = self._tokens.token(refused=token)
            answer = self._get(url, {"Authorization": f"Bearer {token}"} | condition)
        return answer

    def _key(self) -> dict[str, str]:
        key = self._tools.secret(self._settings.api_key_env)
        if not key:
            raise SourceError(f"the API needs a key; set {self._settings.api_key_env}", kind="auth")
        return {"X-Goog-Api-Key": key}

    def _get(self, url: str, headers: dict[str, str]) -> HttpResponse:
        self._tools.charge(1)
        try:
            return self._tools.net.get(url, headers=headers)
        except NetError as error:
            raise response_headers.unreachable(error, "the API could not be read") from error

    # What several sources ask

    def rows(self, resource: str, part: str, ids: Sequence[str]) -> Iterator[ApiItem]:
        """The rows of these ids, 50 to a unit. An id that is unknown, private or gone is silently missing."""
        valid = [name for name in dict.fromkeys(ids) if video_fields.valid_id(name)]
        for start in range(0, len(valid), BATCH):
            names = ",".join(valid[start : start + BATCH])
            page = self.page(resource, {"part": part, "id": names, "maxResults": BATCH})
            yield from page.items if page else ()

    def videos(self, ids: Sequence[str]) -> dict[str, VideoDetails]:
        """Length and live state of at most 50. Without maxResults, which `videos.list` does not take beside ids."""
        page = self.page("videos", {"part": "snippet,contentDetails", "id": ",".join(ids)})
        return {str(item.get("id")): _facts(item) for item in (page.items if page else ())}

    def exists(self, resource: str, ref: str) -> Existence:
        """Whether the API knows this channel or playlist. A list that is private to us is missing, too."""
        if not self.usable or video_fields.valid_id(ref) is None:
            return "unknown"
        try:
            found = [row for row in self.rows(resource, "id", [ref]) if row.get("id") == ref]
        except SourceError:
            return "unknown"
        return "exists" if found else "missing"


def part_of(item: ApiItem, name: str) -> ApiItem:
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def is_readable(item: ApiItem) -> bool:
    """Private and deleted videos stay in a list without their date. When one becomes readable, it is new.

    An item without its snippet is as good as one of them: it may come whole the next time.
    """
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


def _page(body: ApiItem) -> ApiPage:
    items = body.get("items", [])
    token, total = body.get("nextPageToken"), part_of(body, "pageInfo").get("totalResults")
    if not isinstance(items, list) or len(items) > _SURPLUS or not _is_token(token):
        raise SourceError("the API's answer is not a page of a list", kind="malformed")
    return ApiPage(
        items=tuple(item for item in items if isinstance(item, dict)),
        next=token or None,
        total=total if isinstance(total, int) else None,
        etag=_etag(body.get("etag")),
    )


def _is_token(token: Any) -> bool:
    return token is None or (isinstance(token, str) and len(token) <= MAX_TOKEN and token.isascii())


def _etag(text: Any) -> str | None:
    """The body's own, which is what If-None-Match takes; old answers have it in quotes."""
    return text if isinstance(text, str) and response_headers.is_sendable(text) else None


def _facts(item: ApiItem) -> VideoDetails:
    live = part_of(item, "snippet").get("liveBroadcastContent")
    return VideoDetails(
        duration=duration_seconds(part_of(item, "contentDetails").get("duration")),
        live=live if live in video_fields.STREAMS else None,
    )


def duration_seconds(text: Any) -> int | None:
    """`PT21M7S`, `P1DT2H`. None: not a duration, or the `P0D` of a stream that is not over."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    units = zip((604_800, 86_400, 3_600, 60, 1), match.groups(), strict=True)
    return sum(seconds * int(count or 0) for seconds, count in units) or None
