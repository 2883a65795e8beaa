"""A simulated Reddit with the real limits: one anonymous request a minute, windows of 100 posts, a listing of 1,000.

Members that do not exist, are banned or private are left out of a group without a word; alone they answer 404 or 403.
429 and 403 are HTML pages. Approved posts appear late, at their old time.
"""

import html
import json
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from csi import clock
from csi.errors import CsiError

DEPTH = 1000
MINUTE = 60.0
_LISTING = re.compile(r"/r/(?P<names>[A-Za-z0-9_+-]+)/new(?P<feed>/\.rss)?/?")
_SUBREDDIT = re.compile(r"[A-Za-z0-9_]{2,21}")
STATES = ("", "banned", "private", "renamed")
PAGE = b"<!doctype html><html><head><title>Too Many Requests</title></head><body>whoa there, pardner!</body></html>"


@dataclass(frozen=True)
class SimulatedPost:
    """One post. `listed_at`: when it appears, later than `created` where a moderator approved it."""

    number: int
    subreddit: str
    created: float
    listed_at: float
    title: str
    self_text: str | None = None
    score: int = 1
    flair: str | None = None

    @property
    def id(self) -> str:
        digits, number = "", self.number + 36**5
        while number:
            number, rest = divmod(number, 36)
            digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
        return digits


@dataclass(frozen=True)
class SimulatedAnswer:
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class RedditSite:
    """The posts of all subreddits, the requests, and what is wrong now."""

    now: Callable[[], float] = clock.now
    per_minute: int | None = 1
    """Anonymous requests in a minute, all paths together; None: no limit."""
    accepts_key: bool = True
    blocked: bool = False
    """Every anonymous request is answered 403, as Reddit does to some addresses."""
    posts: dict[str, list[SimulatedPost]] = field(default_factory=dict)
    """By subreddit in lower case, the oldest first."""
    banned: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[float, str, int]] = field(default_factory=list)
    """Time, path and status of every request for a listing."""
    tokens: int = 0
    _count: int = 0

    def add(self, *names: str) -> None:
        for name in names:
            self.posts.setdefault(name.lower(), [])

    def publish(self, name: str, *, at: float | None = None, late: float = 0.0, **more: object) -> SimulatedPost:
        created = self.now() if at is None else at
        self._count += 1
        title = str(more.pop("title", f"Post {self._count} of {name}"))
        post = SimulatedPost(self._count, name, created, created + late, title, **more)  # type: ignore[arg-type]
        self.posts[name.lower()].append(post)
        return post

    def state(self, name: str) -> str:
        """`banned`, `private`, `renamed`, or empty: readable."""
        found: dict[str, Collection[str]] = {"banned": self.banned, "private": self.private, "renamed": self.renamed}
        return next((state for state, names in found.items() if name in names), "")

    def set_state(self, name: str, state: str, renamed_to: str = "") -> None:
        """Make a subreddit readable (empty), banned, private or renamed; one that is new is created. CsiError: there is
        no such state, or no new name."""
        if state not in STATES or (state == "renamed") != bool(renamed_to):
            raise CsiError(f"state: expected one of {', '.join(STATES[1:])} (with renamed_to), or nothing")
        if not _SUBREDDIT.fullmatch(name):
            raise CsiError("name: expected the name of a subreddit")
        name = name.lower()
        self.add(name)
        self.banned.discard(name)
        self.private.discard(name)
        self.renamed.pop(name, None)
        match state:
            case "banned":
                self.banned.add(name)
            case "private":
                self.private.add(name)
            case "renamed":
                self.add(renamed_to)
                self.renamed[name] = renamed_to

    def get(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> SimulatedAnswer:
        answer = self._get(path, query, {name.lower(): value for name, value in headers.items()})
        self.asked.append((self.now(), path, answer.status))
        return answer

    def token(self, headers: Mapping[str, str], body: bytes) -> SimulatedAnswer:
        """The endpoint of access tokens."""
        given = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
        identity = b64decode(given.removeprefix("Basic ") or "Og==").decode(errors="replace")
        known = dict(parse_qsl(body.decode())).get("grant_type") in ("client_credentials", "password")
        if not self.accepts_key or not known or identity.startswith(":"):
            return _json({"message": "Unauthorized", "error": 401}, 401)
        self.tokens += 1
        return _json({"access_token": "simulated-token", "token_type": "bearer", "expires_in": 3600, "scope": "*"})

    def _get(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> SimulatedAnswer:
        match = _LISTING.fullmatch(path)
        is_feed = bool(match and match["feed"])
        if not is_feed and "authorization" not in headers:
            return SimulatedAnswer(403, PAGE, (("content-type", "text/html"),))
        if is_feed and (refusal := self._refused()) is not None:
            return refusal
        if not is_feed and not self.accepts_key:
            return _json({"message": "Unauthorized", "error": 401}, 401)
        if match is None:
            return SimulatedAnswer(404, PAGE, (("content-type", "text/html"),))
        names = match["names"].lower().split("+")
        hidden = self.banned | self.private | set(self.renamed)
        readable = [name for name in names if name in self.posts and name not in hidden]
        if len(names) == 1 and (there := self.renamed.get(names[0])):
            return SimulatedAnswer(301, b"", (("location", path.replace(match["names"], there)),))
        if not readable:
            private = len(names) == 1 and names[0] in self.private
            return SimulatedAnswer(403 if private else 404, PAGE, (("content-type", "text/html"),))
        limit = min(int(query.get("limit", 25)), 100)
        found, following = self.page(readable, limit, query.get("after"))
        if is_feed:
            head = (
                '<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom"><id>/r/x/new/.rss</id>'
            )
            text = f"{head}{''.join(map(_entry, found))}</feed>"
            kind = ("content-type", "application/atom+xml; charset=UTF-8")
            limits = (("x-ratelimit-remaining", "0.0"), ("x-ratelimit-reset", "60"))
            return SimulatedAnswer(200, text.encode(), (kind, *limits))
        rows = [
            {
                "name": f"t3_{post.id}", "id": post.id, "title": post.title, "author": "writer",
                "subreddit": post.subreddit, "selftext": post.self_text or "", "is_self": post.self_text is not None,
                "url": f"https://example.org/{post.id}", "domain": "example.org", "permalink": _permalink(post),
                "created_utc": float(post.created), "over_18": False, "stickied": False, "link_flair_text": post.flair,
                "score": post.score, "num_comments": 0,
            }
            for post in found
        ]  # fmt: skip
        children = [{"kind": "t3", "data": row} for row in rows]
        return _json({"kind": "Listing", "data": {"children": children, "after": following, "before": None}})

    def _refused(self) -> SimulatedAnswer | None:
        now = self.now()
        if self.blocked:
            return SimulatedAnswer(403, PAGE, (("content-type", "text/html"),))
        last = [at for at, path, status in self.asked[-100:] if path.endswith(".rss") and status == 200]
        recent = [at for at in last if now - at < MINUTE]
        if self.per_minute is None or len(recent) < self.per_minute:
            return None
        reset = str(max(round(MINUTE - (now - recent[0])), 1))
        return SimulatedAnswer(429, PAGE, (("content-type", "text/html"), ("x-ratelimit-reset", reset)))

    def page(
        self, names: Sequence[str], limit: int, after: str | None = None
    ) -> tuple[list[SimulatedPost], str | None]:
        """The newest posts of these subreddits, or those after this one, and what the next page begins after."""
        now = self.now()
        # Only the newest posts can be on the pages: the whole list grows for a simulated day.
        pool = [post for name in names for post in self.posts[name][-2 * DEPTH :] if post.listed_at <= now]
        pool = sorted(pool, key=lambda post: (-post.created, -post.number))[:DEPTH]
        start = next((place + 1 for place, post in enumerate(pool) if f"t3_{post.id}" == after), 0) if after else 0
        page = pool[start : start + limit]
        more = start + limit < len(pool)
        return page, f"t3_{page[-1].id}" if page and more else None


def _entry(post: SimulatedPost) -> str:
    here = _permalink(post)
    link = f"https://www.reddit.com{here}"
    target = link if post.self_text is not None else f"https://example.org/{post.id}"
    text, anchor = html.escape(post.self_text or ""), f'<span><a href="{target}">[link]</a></span>'
    body = f'<p>{text}</p> submitted by <a href="/u/x"> /u/writer </a> {anchor}'
    return (
        f'<entry><author><name>/u/writer</name></author><category term="{post.subreddit}" label="r/{post.subreddit}"/>'
        f'<content type="html">{html.escape(body)}</content><id>t3_{post.id}</id><link href="{link}"/>'
        f"<updated>{clock.iso(post.created)}</updated><published>{clock.iso(post.created)}</published>"
        f"<title>{html.escape(post.title)}</title></entry>"
    )


def _permalink(post: SimulatedPost) -> str:
    return f"/r/{post.subreddit}/comments/{post.id}/post/"


def _json(document: object, status: int = 200) -> SimulatedAnswer:
    return SimulatedAnswer(status, json.dumps(document).encode(), (("content-type", "application/json"),))
