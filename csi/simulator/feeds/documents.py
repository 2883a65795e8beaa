"""The documents of a simulated feed: RSS, Atom, JSON Feed, a podcast, and RSS in older encodings; damaged on demand."""

import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate

from csi import clock


@dataclass(frozen=True)
class FeedPost:
    """One item of a simulated feed."""

    number: int
    title: str
    published: float


@dataclass(frozen=True)
class FeedHead:
    """What a document says of its feed."""

    title: str
    base: str
    """The address of the site, without a slash at the end."""
    address: str
    hub: str | None = None


Renderer = Callable[[FeedHead, Sequence[FeedPost]], bytes]


def _rss(head: FeedHead, posts: Sequence[FeedPost], *, encoding: str = "utf-8", podcast: bool = False) -> bytes:
    hub = f'<atom:link rel="hub" href="{head.hub}"/>' if head.hub else ""
    items = "".join(
        f"<item><guid>{head.address}#{post.number}</guid><title>{html.escape(post.title)}</title>"
        f"<link>{head.base}/posts/{post.number}</link><description>Text of {html.escape(post.title)}</description>"
        f"<pubDate>{formatdate(post.published, usegmt=True)}</pubDate>"
        + (
            f'<enclosure url="{head.base}/audio/{post.number}.mp3" type="audio/mpeg" length="12345"/>'
            "<itunes:duration>1:02:03</itunes:duration>"
            if podcast
            else ""
        )
        + "</item>"
        for post in posts
    )
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?><rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom" '
        'xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd">'
        f"<channel><title>{html.escape(head.title)}</title><link>{head.base}/</link>"
        f'<atom:link rel="self" href="{head.address}"/>{hub}<image><url>{head.base}/icon.png</url></image>'
        f"{items}</channel></rss>"
    )
    return text.encode(encoding, "xmlcharrefreplace")


def _atom(head: FeedHead, posts: Sequence[FeedPost]) -> bytes:
    hub = f'<link rel="hub" href="{head.hub}"/>' if head.hub else ""
    entries = "".join(
        f"<entry><id>{head.address}#{post.number}</id><title>{html.escape(post.title)}</title>"
        f'<link href="{head.base}/posts/{post.number}"/><published>{clock.iso(post.published)}</published>'
        f"<updated>{clock.iso(post.published)}</updated><author><name>A writer</name></author>"
        f'<content type="html">&lt;p&gt;Text of {html.escape(html.escape(post.title))}&lt;/p&gt;</content></entry>'
        for post in posts
    )
    return (
        f'<?xml version="1.0" encoding="utf-8"?><feed xmlns="http://www.w3.org/2005/Atom"><id>{head.address}</id>'
        f'<title>{html.escape(head.title)}</title><link href="{head.base}/"/><link rel="self" href="{head.address}"/>'
        f"{hub}<icon>{head.base}/icon.png</icon>{entries}</feed>"
    ).encode()


def _json(head: FeedHead, posts: Sequence[FeedPost]) -> bytes:
    document = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": head.title,
        "home_page_url": f"{head.base}/",
        "feed_url": head.address,
        "icon": f"{head.base}/icon.png",
        "items": [
            {
                "id": f"{head.address}#{post.number}",
                "url": f"{head.base}/posts/{post.number}",
                "title": post.title,
                "content_text": f"Text of {post.title}",
                "date_published": clock.iso(post.published),
                "authors": [{"name": "A writer"}],
            }
            for post in posts
        ],
    } | ({"hubs": [{"type": "WebSub", "url": head.hub}]} if head.hub else {})
    return json.dumps(document, ensure_ascii=False).encode()


RENDERERS: dict[str, tuple[str, Renderer]] = {
    "rss": ("application/rss+xml; charset=utf-8", _rss),
    "atom": ("application/atom+xml; charset=utf-8", _atom),
    "json": ("application/feed+json", _json),
    "podcast": ("application/rss+xml", lambda head, posts: _rss(head, posts, podcast=True)),
    "latin1": ("text/xml", lambda head, posts: _rss(head, posts, encoding="iso-8859-1")),
    "cyrillic": ("text/xml", lambda head, posts: _rss(head, posts, encoding="windows-1251")),
    "utf16": ("text/xml", lambda head, posts: _rss(head, posts, encoding="utf-16")),
}
"""Content type and document of each kind."""

PAGE = (
    '<!doctype html><html><head><title>{title}</title><link rel="alternate" type="{type}" href="{address}"></head>'
    "<body><h1>{title}</h1></body></html>"
)
NOT_A_FEED = b"<!doctype html><html><body>Down for maintenance</body></html>"

# For RSS and Atom in UTF-8; another document stays as it is.
_GUID = re.compile(rb"(<guid>|<entry><id>)(.*?)(</guid>|</id>)")
_DATE = re.compile(rb"<pubDate>.*?</pubDate>|<published>.*?</published><updated>.*?</updated>")
_ITEM = re.compile(rb"<item>.*?</item>|<entry>.*?</entry>", re.S)

MANY, TOO_LARGE = 50_000, 20 * 1024 * 1024
_ENTITIES = b'?><!DOCTYPE rss [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'


def _many(body: bytes) -> bytes:
    """This document with MANY old items before its own."""
    kind, key = (b"item", b"guid") if b"<item>" in body else (b"entry", b"id")
    item = b"<%b><%b>old-%d</%b><title>Old %d</title></%b>"
    items = b"".join(item % (kind, key, number, key, number, kind) for number in range(MANY))
    return body.replace(b"<%b>" % kind, items + b"<%b>" % kind, 1)


_BODY_FAULTS: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda body: body[: len(body) * 2 // 3],
    "newline": lambda body: b"\n\n" + body,
    "entities": lambda body: body.replace(b"?>", _ENTITIES, 1),
    "empty": lambda body: b"",
    "html": lambda body: NOT_A_FEED,
    "same_guid": lambda body: _GUID.sub(rb"\1the same\3", body),
    "no_dates": lambda body: _DATE.sub(b"", body),
    "year_9999": lambda body: _DATE.sub(rb"<pubDate>Fri, 31 Dec 9999 23:59:59 GMT</pubDate>", body),
    "no_items": lambda body: _ITEM.sub(b"", body),
    "many_items": _many,
    "too_large": lambda body: body.ljust(TOO_LARGE),
}
BODY_FAULTS = tuple(_BODY_FAULTS)
"""What can be wrong with a document that is answered with 200."""


def damaged(body: bytes, fault: str) -> bytes:
    return _BODY_FAULTS[fault](body)
