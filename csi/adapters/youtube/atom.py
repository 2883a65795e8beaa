"""Read the entries of YouTube's Atom feed: by expat if it is written as YouTube writes it, else by feedparser.

feedparser takes 15 times as long (5 ms for 15 entries), and a worker reads thousands of these feeds. The fast reader
accepts only YouTube's elements and attributes. A document with anything else (another prefix, a second title, an
attribute on a text) is read by feedparser, so both always give the same entries; tests compare them.
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
"""One entry: the texts of FIELDS, and `thumbnail_url`, `views`, `likes`, if the feed has them."""

FIELDS = ("yt_videoid", "yt_channelid", "title", "link", "published", "updated", "summary", "author")
WINDOW = 15
"""YouTube's feed lists the newest 15 videos."""

_OPENING = re.compile(rb'<\?xml version="1\.0" encoding="UTF-8"\?>\s*<feed[\s>]')
_ABSOLUTE = re.compile(r"https?://[^/]")
_NAMESPACES = {
    "xmlns": "http://www.w3.org/2005/Atom",
    "xmlns:yt": "http://www.youtube.com/xml/schemas/2015",
    "xmlns:media": "http://search.yahoo.com/mrss/",
}


def read_entries(body: bytes) -> list[FeedEntry]:
    """All entries of a YouTube feed. Raises SourceError for any other document, within caps on time and memory."""
    entries = fast_entries(body)
    if entries is None:
        entries = slow_entries(feed_guard.checked(body))
    if entries and not any("yt_videoid" in entry for entry in entries):
        message = "the response is a feed, but not one of YouTube's: no entry has a yt:videoId"
        raise SourceError(message, kind="malformed")
    return entries


def slow_entries(document: bytes) -> list[FeedEntry]:
    """The entries by feedparser."""
    import feedparser  # not at the top: most processes never need it, and it takes memory and time to load

    try:
        # A stream, not bytes or text: feedparser would open a string that names a file or a URL.
        parsed = feedparser.parse(BytesIO(document), sanitize_html=False, resolve_relative_uris=False)
        return plain_entries(parsed)
    except Exception as error:  # feedparser raises errors of any type for hostile documents
        raise SourceError("the response is not a feed that can be read", kind="malformed") from error


def plain_entries(parsed: Any) -> list[FeedEntry]:
    """feedparser's entries with our field names."""
    prefixes = [prefix for prefix, uri in parsed.get("namespaces", {}).items() if uri == _NAMESPACES["xmlns:yt"]]
    # feedparser does not know YouTube's namespace and names its fields by the document's prefix.
    yt = (prefixes or ["yt"])[0].lower()
    names = {name: name.replace("yt_", f"{yt}_") if name.startswith("yt_") else name for name in FIELDS}
    entries = []
    for entry in parsed.entries:
        plain = {name: str(entry[given]) for name, given in names.items() if given in entry}
        thumbnails = entry.get("media_thumbnail") or [{}]
        found = {
            "thumbnail_url": thumbnails[0].get("url"),
            "views": _attribute(entry.get("media_statistics"), "views"),
            "likes": _attribute(entry.get("media_starrating"), "count"),
        }
        entries.append(plain | {name: str(value) for name, value in found.items() if value is not None})
    return entries


def _attribute(attributes: Any, name: str) -> Any:
    return attributes.get(name) if isinstance(attributes, Mapping) else None


# ── the fast reader ─────────────────────────────────────────────────────────────────────────────────────


class _Unfamiliar(Exception):
    """The document is not written as YouTube writes it; feedparser reads it."""


@dataclass(frozen=True)
class _Element:
    """What the fast reader accepts for one element."""

    text: str | None = None
    """The entry's field for its text; "": the text is dropped. None: it has no text."""
    attributes: frozenset[str] = frozenset()
    take: tuple[str, str] | None = None
    """A required attribute and the entry's field for its value; "": the value is dropped."""
    needs: frozenset[str] = frozenset()
    """Required children."""


def _attributes(*names: str, take: tuple[str, str] | None = None) -> _Element:
    return _Element(attributes=frozenset(names), take=take)


_FEED, _ENTRY, _GROUP = "/feed", "/feed/entry", "/feed/entry/media:group"
_IGNORED = ("id", "title", "published", "updated", "yt:channelId", "yt:playlistId", "author/uri", "author/name")
_ELEMENTS = {
    _FEED: _attributes(*_NAMESPACES),
    f"{_FEED}/link": _attributes("rel", "href"),
    f"{_FEED}/author": _Element(),
    **{f"{_FEED}/{name}": _Element(text="") for name in _IGNORED},
    _ENTRY: _Element(needs=frozenset({"title", "link"})),
    **{f"{_ENTRY}/{name}": _Element(text=name) for name in ("title", "published", "updated")},
    f"{_ENTRY}/id": _Element(text=""),
    f"{_ENTRY}/yt:videoId": _Element(text="yt_videoid"),
    f"{_ENTRY}/yt:channelId": _Element(text="yt_channelid"),
    f"{_ENTRY}/link": _attributes("rel", "href", take=("href", "link")),
    f"{_ENTRY}/author": _Element(needs=frozenset({"name"})),
    f"{_ENTRY}/author/uri": _Element(text=""),
    f"{_ENTRY}/author/name": _Element(text="author"),
    _GROUP: _Element(),
    f"{_GROUP}/media:title": _Element(text=""),
    f"{_GROUP}/media:content": _attributes("url", "type", "width", "height", take=("url", "")),
    f"{_GROUP}/media:thumbnail": _attributes("url", "width", "height", take=("url", "thumbnail_url")),
    f"{_GROUP}/media:description": _Element(text="summary"),
    f"{_GROUP}/media:community": _Element(),
    f"{_GROUP}/media:community/media:starRating": _attributes(
        "count", "average", "min", "max", take=("count", "likes")
    ),
    f"{_GROUP}/media:community/media:statistics": _attributes("views", "favorites", take=("views", "views")),
}
_REPEATED = frozenset({_ENTRY, f"{_FEED}/link"})


@dataclass
class _AtomReader:
    """The handlers for expat. Raises _Unfamiliar at the first element or attribute that YouTube does not write."""

    entries: list[FeedEntry] = field(default_factory=list)
    path: list[tuple[str, _Element, set[str]]] = field(default_factory=lambda: [("", _Element(), set())])
    pieces: list[str] = field(default_factory=list)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        above, _, seen = self.path[-1]
        path = f"{above}/{name}"
        element = _ELEMENTS.get(path)
        if element is None or (name in seen and path not in _REPEATED) or not attributes.keys() <= element.attributes:
            raise _Unfamiliar
        if path == _FEED and attributes != _NAMESPACES:
            raise _Unfamiliar
        if path == _GROUP and "title" not in seen:
            raise _Unfamiliar  # without an earlier title feedparser takes media:title for it
        if path == _ENTRY:
            self.entries.append({})
            if len(self.entries) > feed_guard.MAX_ENTRIES:
                raise _Unfamiliar
        if element.take is not None:
            attribute, target = element.take
            value = attributes.get(attribute)
            # feedparser changes the address of other links, and of relative ones.
            kept = target != "link" or (attributes.get("rel") == "alternate" and _ABSOLUTE.match(value or ""))
            if value is None or not kept:
                raise _Unfamiliar
            if target:
                self.entries[-1][target] = value
        seen.add(name)
        self.path.append((path, element, set()))
        self.pieces.clear()

    def data(self, text: str) -> None:
        if self.path[-1][1].text is not None:
            self.pieces.append(text)
        elif not text.isspace():
            raise _Unfamiliar

    def end(self, name: str) -> None:
        _, element, seen = self.path.pop()
        if not element.needs <= seen:
            raise _Unfamiliar
        if element.text:
            text = "".join(self.pieces).strip()
            if element.text != "author" and not text.isascii():
                # feedparser repairs the characters of every text but an author's name.
                with suppress(UnicodeError):
                    text = text.encode("iso-8859-1").decode("utf-8")
                text = text.translate(_WINDOWS) if _C1.search(text) else text
            self.entries[-1][element.text] = text
        self.pieces.clear()


def fast_entries(body: bytes) -> list[FeedEntry] | None:
    """The entries of a feed that is written as YouTube writes it. None: any other document."""
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


# feedparser reads C1 controls as Windows-1252, and repairs UTF-8 that was decoded as Latin-1.
_C1 = re.compile("[\x80-\x9f]")
_WINDOWS = {
    code: bytes([code]).decode("cp1252") for code in range(0x80, 0xA0) if code not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
