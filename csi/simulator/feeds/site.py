"""A site with feeds of every kind: posts, caching headers, redirects, a hub, and faults that are set from outside."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate

from csi import clock
from csi.errors import CsiError
from csi.simulator.feeds.documents import BODY_FAULTS, NOT_A_FEED, PAGE, RENDERERS, FeedHead, FeedPost, damaged

STATUS_FAULTS = {
    "gone": 410, "missing": 404, "error": 500, "denied": 403, "bot_wall": 403, "throttled": 429, "busy": 503,
}  # fmt: skip
REDIRECT_FAULTS = {"moved": 301, "moved_for_now": 302, "loop": 302, "metadata": 302}
FAULTS = ("", *BODY_FAULTS, *STATUS_FAULTS, *REDIRECT_FAULTS)
"""What can be wrong with a feed; empty: nothing."""
WINDOW = 20
"""The newest posts that a feed lists."""
RETRY_AFTER = 120
_SCRIPT = re.compile(r"([A-Za-z0-9-]+):([a-z_0-9]+)")


@dataclass(frozen=True)
class SiteAnswer:
    """Status, body and headers of one answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class SimulatedFeed:
    """One feed and what is wrong with it now."""

    name: str
    kind: str
    posts: list[FeedPost] = field(default_factory=list)
    """The oldest first."""
    fault: str = ""


@dataclass
class FeedSite:
    """All feeds of one port. `base` is its address."""

    base: str
    now: Callable[[], float] = clock.now
    max_age: int = 0
    """`Cache-Control: max-age` of every feed; 0: none is sent."""
    with_hub: bool = False
    feeds: dict[str, SimulatedFeed] = field(default_factory=dict)
    requests: list[tuple[float, str, int]] = field(default_factory=list)
    """Time, path and status of the latest requests."""
    made: int = 0

    def add(self, name: str, kind: str = "rss", posts: int = 0) -> SimulatedFeed:
        feed = self.feeds.setdefault(name, SimulatedFeed(name, kind))
        for place in range(posts):
            self.publish(name, at=self.now() - 3600.0 * (posts - place))
        return feed

    def publish(self, name: str, title: str | None = None, *, at: float | None = None) -> FeedPost:
        """CsiError: there is no such feed."""
        feed = self.found(name)
        self.made += 1
        words = title or f"Post {self.made} of {name}: café, Привет, 1 < 2"
        post = FeedPost(self.made, words, float(int(self.now() if at is None else at)))
        feed.posts.append(post)
        return post

    def set_fault(self, name: str, fault: str) -> None:
        """CsiError: there is no such feed or fault."""
        if fault not in FAULTS:
            raise CsiError(f"there is no fault {fault!r}: {', '.join(FAULTS[1:])}, or none")
        self.found(name).fault = fault

    def set_faults(self, script: str) -> None:
        """`blog-1:gone,blog-2:moved`."""
        for part in filter(None, (word.strip() for word in script.split(","))):
            match = _SCRIPT.fullmatch(part)
            if match is None:
                raise CsiError(f"expected FEED:FAULT, as in rss-1:gone, not {part!r}")
            self.set_fault(match[1], match[2])

    def found(self, name: str) -> SimulatedFeed:
        if name not in self.feeds:
            raise CsiError(f"there is no feed {name!r}: {', '.join(self.feeds)}")
        return self.feeds[name]

    def address(self, name: str) -> str:
        return f"{self.base}/feeds/{name}"

    def document(self, feed: SimulatedFeed) -> bytes:
        newest = feed.posts[-WINDOW:][::-1]
        hub = f"{self.base}/hub" if self.with_hub else None
        head = FeedHead(f"The {feed.name}", self.base, self.address(feed.name), hub)
        return RENDERERS[feed.kind][1](head, newest)

    def get(self, path: str, headers: Mapping[str, str]) -> SiteAnswer:
        answer = self._get(path, {name.lower(): value for name, value in headers.items()})
        self.requests = [*self.requests[-999:], (self.now(), path, answer.status)]
        return answer

    def _get(self, path: str, headers: Mapping[str, str]) -> SiteAnswer:
        kind, _, name = path.strip("/").partition("/")
        feed = self.feeds.get(name)
        if feed is None or kind not in ("feeds", "moved", "pages"):
            return SiteAnswer(404, NOT_A_FEED, {"Content-Type": "text/html"})
        if kind == "pages":
            page = PAGE.format(
                title=feed.name, type=RENDERERS[feed.kind][0].partition(";")[0], address=f"/feeds/{name}"
            )
            return SiteAnswer(200, page.encode(), {"Content-Type": "text/html; charset=utf-8"})
        if kind == "feeds" and (status := STATUS_FAULTS.get(feed.fault)) is not None:
            more = {"Retry-After": str(RETRY_AFTER)} if status in (429, 503) else {}
            more |= {"cf-mitigated": "challenge"} if feed.fault == "bot_wall" else {}
            return SiteAnswer(status, NOT_A_FEED, {"Content-Type": "text/html", **more})
        if kind == "feeds" and (status := REDIRECT_FAULTS.get(feed.fault)) is not None:
            other = {"loop": self.address(feed.name), "metadata": "http://169.254.169.254/latest/meta-data/"}
            return SiteAnswer(status, b"", {"Location": other.get(feed.fault, f"/moved/{feed.name}")})
        body = self.document(feed)
        if feed.fault in BODY_FAULTS:
            body = damaged(body, feed.fault)
        changed = feed.posts[-1].published if feed.posts else 0.0
        known = {
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:16]}"',
            "Last-Modified": formatdate(changed, usegmt=True),
        }
        if self.max_age:
            known["Cache-Control"] = f"max-age={self.max_age}"
        if self.with_hub:
            known["Link"] = f'<{self.base}/hub>; rel="hub", <{self.address(feed.name)}>; rel="self"'
        if headers.get("if-none-match") == known["ETag"]:
            return SiteAnswer(304, b"", known)
        return SiteAnswer(200, body, known | {"Content-Type": RENDERERS[feed.kind][0]})
