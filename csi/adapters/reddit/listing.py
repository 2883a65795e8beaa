"""The newest posts of one or more subreddits: from the Atom feed, or from the API with OAuth."""

import base64
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from csi import clock
from csi.adapters import feed_document, response_headers
from csi.adapters.base import Tools
from csi.adapters.reddit.settings import RedditSettings
from csi.errors import NetError, SourceError
from csi.exclusive_section import POLL_SECTION
from csi.ingester.text import TEXT_CHARS, TITLE_CHARS, clean
from csi.net import HttpLimits, HttpResponse

WINDOW = 100
LIMITS = HttpLimits(total=25.0, max_body=8 * 1024 * 1024, max_redirects=3)
FEED_PACE, API_PACE = "reddit.com", "oauth.reddit.com"
"""Names in `net.hosts`: one address has one limit for all paths of reddit.com, whatever base URL is configured."""
OAUTH_PAUSE = 3600.0
"""After refused credentials the feed is read for so long, then they are tried again."""
RENEW_EARLY = 120.0
ACCESS = "reddit_oauth"

_ID = re.compile(r"t3_([0-9a-z]{1,13})")
_RENAMED = re.compile(r"/r/([A-Za-z0-9_]{2,21})/")


@dataclass(frozen=True)
class Post:
    """One post, the same from both ways. What only the API tells is None in a post of the feed."""

    id: str
    subreddit: str
    title: str
    permalink: str
    published: float
    author: str | None = None
    url: str | None = None
    text: str = ""
    is_self: bool | None = None
    domain: str | None = None
    score: int | None = None
    comments: int | None = None
    flair: str | None = None
    nsfw: bool | None = None
    stickied: bool | None = None


@dataclass(frozen=True)
class Listing:
    """One page. `after`: what the next page begins after; None: this was the last one."""

    posts: tuple[Post, ...]
    unreadable: int = 0
    after: str | None = None
    renamed_to: str | None = None


class RefusedCredentials(Exception):
    """The API does not accept our credentials."""


class Reddit:
    """Reads listings: with OAuth where credentials are set and accepted, else from the feed."""

    def __init__(self, settings: RedditSettings, tools: Tools) -> None:
        self._settings, self._tools = settings, tools
        self._lock = threading.Lock()
        self._token: tuple[str, float] | None = None
        self._refused_at: float | None = None

    @property
    def uses_oauth(self) -> bool:
        settings, now = self._settings, self._tools.now()
        if not settings.has_oauth or not all(self._secret(name) for name in ("client_id_env", "client_secret_env")):
            return False
        return self._refused_at is None or not 0 <= now - self._refused_at < OAUTH_PAUSE

    @property
    def pace(self) -> str:
        return API_PACE if self.uses_oauth else FEED_PACE

    def page(self, names: Sequence[str], after: str | None) -> Listing:
        """SourceError as in csi.adapters.base; of several subreddits a 403 is always about all requests."""
        if self.uses_oauth:
            try:
                found = self._api_page(names, after)
            except RefusedCredentials as error:
                self._refused_at = self._tools.now()
                self._tools.note_access(ACCESS, str(error))
            else:
                self._tools.note_access(ACCESS, None)
                return found
        query = {"limit": WINDOW} | ({"after": after} if after else {})
        url = f"{self._settings.feed_base_url.rstrip('/')}/r/{'+'.join(names)}/new/.rss?{urlencode(query)}"
        answer = self._get(url, FEED_PACE, {})
        if answer.status != 200:
            raise self._refusal(answer, names)
        with POLL_SECTION:  # parsing is CPU-bound: one thread at a time
            document = feed_document.read_feed(answer.body, answer.headers.get("content-type", ""), url)
        items = [_from_feed(item) for item in document.items]
        posts = tuple(post for post in items if post is not None)
        ids = [match[0] for item in document.items if (match := _ID.fullmatch(item.guid or ""))]
        following = ids[-1] if ids and len(items) >= WINDOW else None
        return Listing(posts, len(items) - len(posts), following, _renamed(answer, names))

    # ── the feed ────────────────────────────────────────────────────────────────────────────────────────

    # ── the API ─────────────────────────────────────────────────────────────────────────────────────────

    def _api_page(self, names: Sequence[str], after: str | None) -> Listing:
        query = {"limit": WINDOW, "raw_json": 1} | ({"after": after} if after else {})
        url = f"{self._settings.api_base_url.rstrip('/')}/r/{'+'.join(names)}/new?{urlencode(query)}"
        answer = self._get(url, API_PACE, {"Authorization": f"Bearer {self._access_token()}"})
        if answer.status == 401:
            self._token = None
            raise RefusedCredentials("the API answered 401 to the access token")
        if answer.status != 200:
            raise self._refusal(answer, names)
        try:
            data = json.loads(answer.body)["data"]
            children = [child["data"] for child in data["children"] if child.get("kind") == "t3"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SourceError("the response is not a listing of Reddit's API", kind="malformed") from error
        found = [_from_api(child, self._settings.feed_base_url) for child in children]
        posts = tuple(post for post in found if post is not None)
        following = data.get("after")
        return Listing(
            posts,
            len(found) - len(posts),
            following if isinstance(following, str) and _ID.fullmatch(following) else None,
            _renamed(answer, names),
        )

    def _access_token(self) -> str:
        with self._lock:
            now = self._tools.now()
            if self._token is not None and now < self._token[1]:
                return self._token[0]
            identity = f"{self._secret('client_id_env')}:{self._secret('client_secret_env')}"
            form = {"grant_type": "client_credentials"}
            if self._secret("username_env"):
                form = {
                    "grant_type": "password",
                    "username": self._secret("username_env") or "",
                    "password": self._secret("password_env") or "",
                }
            headers = {
                "Authorization": f"Basic {base64.b64encode(identity.encode()).decode()}",
                "Content-Type": "application/x-www-form-urlencoded",
                "User-Agent": self._settings.user_agent,
            }
            try:
                answer = self._tools.net.post(
                    self._settings.token_url, body=urlencode(form).encode(), headers=headers, limits=LIMITS
                )
            except NetError as error:
                raise response_headers.unreachable(error, "no access token from Reddit") from error
            if answer.status in (400, 401, 403):
                raise RefusedCredentials(f"Reddit answered {answer.status} to the request for an access token")
            try:
                document = json.loads(answer.body)
                token, lasts = str(document["access_token"]), float(document.get("expires_in", 3600))
            except (ValueError, KeyError, TypeError) as error:
                if answer.status == 200:  # {"error": "invalid_grant"} comes with 200
                    raise RefusedCredentials("Reddit gave no access token for these credentials") from error
                wait = response_headers.retry_after(answer, now)
                text = f"the request for an access token was answered {answer.status}"
                raise SourceError(
                    text, kind="throttled" if answer.status == 429 else "transient", retry_after=wait
                ) from error
            self._token = (token, now + max(min(lasts, 86_400.0) - RENEW_EARLY, 30.0))
            return token

    # ── both ────────────────────────────────────────────────────────────────────────────────────────────

    def _get(self, url: str, pace: str, headers: Mapping[str, str]) -> HttpResponse:
        try:
            return self._tools.net.get(
                url, headers={"User-Agent": self._settings.user_agent, **headers}, limits=LIMITS, paced_as=pace
            )
        except NetError as error:
            raise response_headers.unreachable(error, "Reddit could not be read") from error

    def _refusal(self, answer: HttpResponse, names: Sequence[str]) -> SourceError:
        status, now = answer.status, self._tools.now()
        wait = response_headers.retry_after(answer, now)
        if status in (429, 503):
            return SourceError(f"Reddit answered {status}: too many requests", kind="throttled", retry_after=wait)
        if status == 404:
            return SourceError(f"{_named(names)}: Reddit answered 404", kind="missing")
        if status in (401, 403, 451):
            return SourceError(f"{_named(names)}: Reddit answered {status}", kind="denied")
        return SourceError(f"Reddit answered {status}", kind="transient")

    def _secret(self, key: str) -> str | None:
        name = getattr(self._settings, key)
        return self._tools.secret(name) if name else None


def _named(names: Sequence[str]) -> str:
    return f"r/{names[0]}" if len(names) == 1 else f"{len(names)} subreddits"


def _renamed(answer: HttpResponse, names: Sequence[str]) -> str | None:
    """The other subreddit that a single one redirects to."""
    if len(names) != 1 or not answer.redirects:
        return None
    found = _RENAMED.match(urlsplit(answer.redirects[-1].url).path + "/")
    return found[1] if found and found[1].lower() != names[0].lower() else None


def _from_feed(item: feed_document.FeedItem) -> Post | None:
    """None: not a post, or without what makes one."""
    match = _ID.fullmatch(item.guid or "")
    if match is None or item.link is None or item.published is None or not item.tags:
        return None
    linked = None if item.linked is None else urlsplit(item.linked)
    is_self = None if linked is None else linked.path.rstrip("/") == urlsplit(item.link).path.rstrip("/")
    author = (item.author or "").removeprefix("/u/").removeprefix("u/") or None
    return Post(
        id=match[1],
        subreddit=item.tags[0],
        title=item.title,
        permalink=item.link,
        published=item.published,
        author=author,
        url=item.link if is_self else item.linked,
        text=re.sub(r"\s*submitted by\s+/?u/\S+.*$", "", item.summary) if is_self is not False else "",
        is_self=is_self,
        domain=None if is_self or linked is None else (linked.hostname or "").removeprefix("www.") or None,
    )


def _from_api(row: Mapping[str, Any], site: str) -> Post | None:
    match = _ID.fullmatch(str(row.get("name") or ""))
    created, permalink = row.get("created_utc"), row.get("permalink")
    if match is None or not isinstance(created, int | float) or not isinstance(permalink, str):
        return None
    author, is_self = row.get("author"), bool(row.get("is_self"))
    return Post(
        id=match[1],
        subreddit=_text(row.get("subreddit"), 50) or "",
        title=_text(row.get("title"), TITLE_CHARS) or "",
        permalink=f"{site.rstrip('/')}{permalink}" if permalink.startswith("/") else permalink,
        published=float(created),
        author=None if author in (None, "[deleted]") else _text(author, 50),
        url=feed_document.web_address(row.get("url"), site),
        text=_text(row.get("selftext"), TEXT_CHARS) or "",
        is_self=is_self,
        domain=None if is_self else _text(row.get("domain"), 255),
        score=_whole(row.get("score")),
        comments=_whole(row.get("num_comments")),
        flair=_text(row.get("link_flair_text"), 200),
        nsfw=bool(row.get("over_18")),
        stickied=bool(row.get("stickied")),
    )


def _text(value: Any, most: int) -> str | None:
    return clean(value, most) or None if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def iso_of(post: Mapping[str, Any]) -> str:
    return clock.iso(float(post["published"]))
