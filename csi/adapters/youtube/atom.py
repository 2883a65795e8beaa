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
    """What the fast reader accepts for one element in its parent."""

    children: Mapping[str, "_Element"] = field(default_factory=dict)
    text: str | None = None
    """The entry's field for its text; "": the text is dropped. None: it has no text."""
    attributes: frozenset[str] = frozenset()
    take: tuple[str, str] | None = None
    """A required attribute and the entry's field for its value; "": the value is dropped."""
    needs: frozenset[str] = frozenset()
    """Required children."""


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
_UNREPAIRED = frozenset({"author"})  # feedparser repairs the characters of every text but an author's name


@dataclass
class _AtomReader:
    """The handlers for expat. Raises _Unfamiliar at the first element or attribute that YouTube does not write."""

    entries: list[FeedEntry] = field(default_factory=list)
    path: list[tuple[_Element, set[str]]] = field(default_factory=lambda: [(_DOCUMENT, set())])
    pieces: list[str] = field(default_factory=list)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        parent, seen = self.path[-1]
        element = parent.children.get(name)
        repeated = name in seen and name not in _REPEATED and not (parent is _FEED and name == "link")
        if element is None or repeated or parent.text is not None or not attributes.keys() <= element.attributes:
            raise _Unfamiliar
        if element is _FEED and attributes != _NAMESPACES:
            raise _Unfamiliar
        if element is _GROUP and "title" not in seen:
            raise _Unfamiliar  # without an earlier title feedparser takes media:title for it
        if element is _ENTRY:
            self.entries.append({})
            if len(self.entries) > feed_guard.MAX_ENTRIES:
                raise _Unfamiliar
        if element.take is not None:
            self._take(*element.take, attributes)
        seen.add(name)
        self.path.append((element, set()))
        self.pieces.clear()

    def _take(self, name: str, target: str, attributes: dict[str, str]) -> None:
        value = attributes.get(name)
        # feedparser changes the address of other links, and of relative ones.
        kept = target != "link" or (attributes.get("rel") == "alternate" and _ABSOLUTE.match(value or ""))
        if value is None or not kept:
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
            self.entries[-1][element.text] = text if element.text in _UNREPAIRED else _repaired(text)
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


def _repaired(text: str) -> str:
    if text.isascii():
        return text
    with suppress(UnicodeError):
        text = text.encode("iso-8859-1").decode("utf-8")
    return text.translate(_WINDOWS) if _C1.search(text) else text
