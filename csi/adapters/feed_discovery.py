"""Find the feed of a page: the address itself, the links that the page names, and a few well-known paths."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

from csi.adapters import feed_document
from csi.errors import NetError, SourceError
from csi.net import HttpLimits, HttpResponse, Net

LIMITS = HttpLimits(total=15.0, max_body=feed_document.MAX_BYTES, max_redirects=5)
HEAD_CHARS = 512 * 1024
"""How much of a page is searched for links."""
MAX_TRIED = 6
"""Requests beside the first one."""

TYPES = ("application/rss+xml", "application/atom+xml", "application/feed+json", "application/json", "text/xml")
PATHS = ("/feed", "/feed.xml", "/rss.xml", "/atom.xml", "/index.xml")
_LINK_HEADER = re.compile(r'<([^<>]{1,2000})>\s{0,100};[^,]{0,500}?\brel="?alternate\b')


@dataclass(frozen=True)
class FoundFeed:
    """A feed that can be read, and its title."""

    url: str
    title: str


def find_feed(web: Net, address: str) -> FoundFeed | None:
    """The feed at this address or of this page. None: there is none. SourceError: the address cannot be read."""
    try:
        answer = web.get(address, limits=LIMITS)
    except NetError as error:
        raise SourceError(f"the address could not be read: {error}", kind="transient") from error
    if answer.status != 200:
        raise SourceError(f"the address answered {answer.status}", kind="missing")
    here = answer.redirects[-1].url if answer.redirects else address
    if found := _as_feed(answer, address):
        return found
    for place in list(dict.fromkeys(_candidates(answer, here)))[:MAX_TRIED]:
        try:
            answer = web.get(place, limits=LIMITS)
        except NetError:
            continue
        if answer.status == 200 and (found := _as_feed(answer, place)):
            return found
    return None


def _as_feed(answer: HttpResponse, address: str) -> FoundFeed | None:
    try:
        found = feed_document.read_feed(answer.body, answer.headers.get("content-type", ""), address)
    except SourceError:
        return None
    return FoundFeed(address, found.title)


def _candidates(answer: HttpResponse, here: str) -> Iterator[str]:
    """Addresses that may be the feed of this page, the most likely first."""
    for line in answer.headers.get_list("link"):
        yield from (urljoin(here, match) for match in _LINK_HEADER.findall(line[:20_000]))
    page = _PageLinks()
    page.feed(feed_document.decode(answer.body, answer.headers.get("content-type", ""))[:HEAD_CHARS])
    yield from (urljoin(page.base or here, link) for link in page.links)
    parts = urlsplit(here)
    path, site = parts.path.rstrip("/"), f"{parts.scheme}://{parts.netloc}"
    if parts.hostname == "github.com" and path.count("/") == 2:
        yield f"{site}{path}/releases.atom"
    if re.fullmatch(r"/@[\w.-]+", path):  # Mastodon
        yield f"{site}{path}.rss"
    if re.fullmatch(r"/profile/[\w.:-]+", path):  # Bluesky
        yield f"{site}{path}/rss"
    if path.startswith(("/c/", "/a/", "/video-channels/", "/accounts/")):  # PeerTube
        yield f"{site}/feeds/videos.xml"
    yield from (f"{site}{known}" for known in PATHS)


class _PageLinks(HTMLParser):
    """The `<link rel=alternate>` of feeds in a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.base: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "base" and self.base is None:
            self.base = given.get("href") or None
        is_feed = given.get("type", "").partition(";")[0].strip().lower() in TYPES
        if tag == "link" and "alternate" in given.get("rel", "").lower().split() and is_feed and given.get("href"):
            self.links.append(given["href"])
