"""The entries of YouTube's Atom feed: by expat in one pass where it is exactly YouTube's, else by feedparser.

The fast reader knows YouTube's elements, attributes and order, and nothing else. Whatever surprises it (another prefix,
a second title, an attribute on a text) it leaves to feedparser, so both always give the same entries.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from xml.parsers import expat

from csi.adapters.youtube import feed_guard
from csi.errors import SourceError

FeedEntry = dict[str, str]
"""One entry: the texts of FIELDS, and `thumbnail_url`, `views`, `likes`, where the feed has them."""

FIELDS = ("yt_videoid", "yt_channelid", "title", "link", "published", "updated", "summary", "author")
WINDOW = 15
"""YouTube shows the newest 15."""

_OPENING = re.compile(rb'<\?xml version="1\.0" encoding="UTF-8"\?>\s*<feed[\s>]')
_ABSOLUTE = re.compile(r"https?://[^/]")
_NAMESPACES = {
    "xmlns": "http://www.w3.org/2005/Atom",
    "xmlns:yt": "http://www.youtube.com/xml/schemas/2015",
    "xmlns:media": "http://search.yahoo.com/mrss/",
}


def read_entries(body: bytes) -> list[FeedEntry]:
    """All entries of a YouTube feed. SourceError for everything else, within caps on what it may cost."""
    entries = fast_entries(body)
    if entries is None:
        entries = slow_entries(feed_guard.checked(body))
    if entries and not any("yt_videoid" in entry for entry in entries):
        raise SourceError("the answer is a feed, but not one of YouTube's: no entry has a yt:videoId", kind="malformed")
    return entries


def slow_entries(document: bytes) -> list[FeedEntry]:
    """By feedparser. From bytes: it opens a text that names a file or a URL."""
    import feedparser  # here: most processes never meet such a document, and it takes memory and time to load

    try:
        parsed = feedparser.parse(BytesIO(document), sanitize_html=False, resolve_relative_uris=False)
        return plain_entries(parsed)
    except Exception as error:  # a document may break it in any way, and is then simply not a feed
        raise SourceError("the answer is not a feed that can be read", kind="malformed") from error


def plain_entries(parsed: Any) -> list[FeedEntry]:
    """What feedparser found, as our fields. It knows YouTube's namespace only by the prefix the document gives it."""
    prefixes = [prefix for prefix, uri in parsed.get("namespaces", {}).items() if uri == _NAMESPACES["xmlns:yt"]]
    return [_plain(entry, (prefixes or ["yt"])[0].lower()) for entry in parsed.entries]


def _plain(entry: Any, prefix: str) -> FeedEntry:
    names = {name: name.replace("yt_", f"{prefix}_") if name.startswith("yt_") else name for name in FIELDS}
    plain = {name: str(entry[given]) for name, given in names.items() if given in entry}
    thumbnails = entry.get("media_thumbnail") or [{}]
    found = {
        "thumbnail_url": thumbnails[0].get("url"),
        "views": _attribute(entry.get("media_statistics"), "views"),
        "likes": _attribute(entry.get("media_starrating"), "count"),
    }
    return plain | {name: str(value) for name, value in found.items() if value is not None}


def _attribute(attributes: Any, name: str) -> Any:
    return attributes.get(name) if isinstance(attributes, Mapping) else None


# ── the fast reader ─────────────────────────────────────────────────────────────────────────────────────


class _Unfamiliar(Exception):
    """Not exactly what YouTube writes: feedparser's turn."""


@dataclass(frozen=True)
class _Element:
    """What the fast reader knows of one element at its place."""

    children: Mapping[str, "_Element"] = field(default_factory=dict)
    text: str | None = None
    """The entry's field that its text becomes; "" for text that is read and dropped."""
    attributes: frozenset[str] = frozenset()
    take: tuple[str, str] | None = None
    """An attribute it must have, and the field that becomes."""
    needs: frozenset[str] = frozenset()
    """Children it must have."""


def _texts(*names: str, **fields: str) -> dict[str, _Element]:
    return {name: _Element(text="") for name in names} | {name: _Element(text=text) for name, text in fields.items()}


_AUTHOR = _Element(_texts("uri", name="author"), needs=frozenset({"name"}))
_COMMUNITY = _Element(
    {
        "media:starRating": _Element(attributes=frozenset({"count", "average", "min", "max"}), take=("count", "likes")),
        "media:statistics": _Element(attributes=frozenset({"views", "favorites"}), take=("views", "views")),
    }
)
_GROUP = _Element(
    {
        "media:title": _Element(text=""),
        "media:content": _Element(attributes=frozenset({"url", "type", "width", "height"}), take=("url", "")),
        "media:thumbnail": _Element(attributes=frozenset({"url", "width", "height"}), take=("url", "thumbnail_url")),
        "media:description": _Element(text="summary"),
        "media:community": _COMMUNITY,
    }
)
_ENTRY = _Element(
    {
        **_texts("id", title="title", published="published", updated="updated"),
        "yt:videoId": _Element(text="yt_videoid"),
        "yt:channelId": _Element(text="yt_channelid"),
        "link": _Element(attributes=frozenset({"rel", "href"}), take=("href", "link")),
        "author": _AUTHOR,
        "media:group": _GROUP,
    },
    needs=frozenset({"title", "link"}),
)
_FEED = _Element(
    {
        **_texts("id", "title", "published", "updated", "yt:channelId", "yt:playlistId"),
        "link": _Element(attributes=frozenset({"rel", "href"})),
        "author": _Element(_texts("uri", "name")),
        "entry": _ENTRY,
    },
    attributes=frozenset(_NAMESPACES),
)
_DOCUMENT = _Element({"feed": _FEED})
_REPEATED = frozenset({"entry"})
_UNMENDED = frozenset({"author"})  # feedparser mends the characters of every text but a name


@dataclass
class _AtomReader:
    """Follows the document down its elements; raises _Unfamiliar at the first surprise."""

    entries: list[FeedEntry] = field(default_factory=list)
    path: list[tuple[_Element, set[str]]] = field(default_factory=lambda: [(_DOCUMENT, set())])
    pieces: list[str] = field(default_factory=list)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        parent, seen = self.path[-1]
        element = parent.children.get(name)
        repeated = name in seen and name not in _REPEATED and not (parent is _FEED and name == "link")
        if element is None or repeated or parent.text is not None or not attributes.keys() <= element.attributes:
            raise _Unfamiliar
        seen.add(name)
        self._open(element, attributes, seen)
        self.path.append((element, set()))
        self.pieces.clear()

    def _open(self, element: _Element, attributes: dict[str, str], seen: set[str]) -> None:
        if element is _FEED and attributes != _NAMESPACES:
            raise _Unfamiliar
        if element is _ENTRY:
            self.entries.append({})
            if len(self.entries) > feed_guard.MAX_ENTRIES:
                raise _Unfamiliar
        if element is _GROUP and "title" not in seen:
            raise _Unfamiliar  # feedparser would take media:title for the title
        if element.take is not None:
            self._take(element, attributes)

    def _take(self, element: _Element, attributes: dict[str, str]) -> None:
        name, target = element.take or ("", "")
        value = attributes.get(name)
        if value is None or (target == "link" and not _is_alternate(attributes)):
            raise _Unfamiliar
        if target:
            self.entries[-1][target] = value

    def data(self, text: str) -> None:
        if self.path[-1][0].text is not None:
            self.pieces.append(text)
        elif not text.isspace():
            raise _Unfamiliar

    def end(self, name: str) -> None:
        element, seen = self.path.pop()
        if not element.needs <= seen:
            raise _Unfamiliar
        if element.text:
            text = "".join(self.pieces).strip()
            self.entries[-1][element.text] = text if element.text in _UNMENDED else _mended(text)
        self.pieces.clear()


def fast_entries(body: bytes) -> list[FeedEntry] | None:
    """The entries of a feed that is exactly as YouTube writes it. None: it is not, or it is no feed at all."""
    if not _OPENING.match(body) or len(body) > feed_guard.MAX_BYTES:
        return None
    reader = _AtomReader()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, _Unfamiliar):
        return None
    return reader.entries


def _is_alternate(attributes: dict[str, str]) -> bool:
    """A link whose address feedparser leaves as it is."""
    return attributes.get("rel") == "alternate" and _ABSOLUTE.match(attributes["href"]) is not None


# feedparser turns C1 controls into what Windows means by them, and undoes UTF-8 that was taken for Latin-1.
_C1 = re.compile("[\x80-\x9f]")
_WINDOWS = {
    code: bytes([code]).decode("cp1252") for code in range(0x80, 0xA0) if code not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}


def _mended(text: str) -> str:
    if text.isascii():
        return text
    with suppress(UnicodeError):
        text = text.encode("iso-8859-1").decode("utf-8")
    return text.translate(_WINDOWS) if _C1.search(text) else text
