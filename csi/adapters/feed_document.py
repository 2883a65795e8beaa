"""Read any feed: RSS 0.9x to 2.0, Atom and JSON Feed, in any encoding, within bounds on time and memory. Pure.

feedparser reads XML. It takes minutes for a megabyte of attributes or for a long name, so the document is rewritten by
expat first: long texts, long attributes and deep elements are cut, and of very many items the first and the last are
kept. Of a document that is not well-formed, a long beginning that is well-formed is read so, up to its last complete
item; any other one goes to feedparser's tolerant parser.
"""

import codecs
import html
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from html.entities import html5
from io import BytesIO
from typing import Any
from urllib.parse import urljoin, urlsplit
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from csi import clock
from csi.errors import SourceError
from csi.ingester.text import TEXT_CHARS, TITLE_CHARS, clean

MAX_BYTES = 16 * 1024 * 1024
MAX_LOOSE_BYTES = 300 * 1024
"""The tolerant parser is slower, and its time grows faster than the document."""
HALF_OF_ITEMS = 500
"""Of a feed with more than twice as many items the first and the last ones are read: the newest are at either end."""
MAX_CHILDREN = 500
"""Elements inside one item. feedparser's time grows with the square of the number of links or categories."""
MAX_DEPTH = 40
MAX_ATTRIBUTES = 40
MAX_VALUE = 4_000
MAX_TEXT = 20_000
SHORT_TEXT = 500
MAX_LINK = 2_000
MAX_ENCLOSURES = 10
MAX_TAGS = 20
TITLE_WORDS = 100
LONGEST_TAG = 20_000

_ITEMS = frozenset({"item", "entry"})
_LONG = frozenset(
    {"title", "summary", "content", "description", "subtitle", "encoded", "rights", "tagline", "info", "div"}
)
"""Elements that may hold long text. For a name, a date or an address, the time of feedparser's patterns grows with the
square of the length."""
_ADDRESSES = frozenset({"link", "guid", "id", "url", "origlink"})
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.I)
_BARE_AMPERSAND = re.compile(r"&(?!#\d{1,7};|#x[0-9a-fA-F]{1,6};|[A-Za-z][A-Za-z0-9]{1,31};)")
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_LONG_TAG = re.compile(rf"<[^<>]{{{LONGEST_TAG}}}")
_TAG = re.compile(r"<[^<>]{0,2000}>")
_HIDDEN = (
    ("-->", re.compile(r"(?s)<!--.*?-->")),
    ("</script", re.compile(r"(?s)<script\b.*?</script[^<>]*>?")),
    ("</style", re.compile(r"(?s)<style\b.*?</style[^<>]*>?")),
)
"""How each part of a page that no reader sees ends, and the whole of it."""
_LINKED = re.compile(r"""<a\s+href=["']([^"'<>]{1,2000})["']\s*>\s*\[link\]""")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip


@dataclass(frozen=True)
class Enclosure:
    """A file that an item brings: a podcast's sound, a picture."""

    url: str
    type: str | None = None
    length: int | None = None
    duration_seconds: int | None = None


@dataclass(frozen=True)
class FeedItem:
    """One item as the feed states it; texts are plain and cut. `published` None: the feed gives no readable date."""

    guid: str | None
    link: str | None
    title: str
    author: str | None
    published: float | None
    summary: str
    enclosures: tuple[Enclosure, ...] = ()
    tags: tuple[str, ...] = ()
    linked: str | None = None
    """What the anchor `[link]` in the text leads to: Reddit names the page that a post is about so."""


@dataclass(frozen=True)
class FeedDocument:
    """A feed: its own facts and its items, in the order of the document."""

    title: str
    link: str | None
    items: tuple[FeedItem, ...]
    hub: str | None = None
    """The WebSub hub that announces changes of `topic`."""
    topic: str | None = None
    icon: str | None = None
    ttl: float = 0.0
    """Seconds for which the feed wants to be cached (`ttl` of RSS)."""
    left_out: int = 0
    """Items between the first and the last ones that were not read."""


def read_feed(body: bytes, content_type: str, url: str) -> FeedDocument:
    """The feed at `url`. SourceError (malformed) for anything that is not a feed."""
    text = decode(body, content_type).lstrip("\ufeff \t\r\n\x00")
    if not text:
        raise _malformed("it is empty")
    if text[0] in "{[":
        return _read_json(text, url)
    if re.match(r"(?i)<!doctype\s+html|<html\b", text):
        raise _malformed("it is an HTML page")
    text = _UNSAFE.sub("", text)
    rewritten, left_out = _rewrite(text)
    import feedparser  # not at the top: most processes never need it, and it takes memory and time to load

    try:
        # A stream, not bytes or text: feedparser would open a string that names a file or a URL.
        parsed = feedparser.parse(BytesIO(rewritten), sanitize_html=False, resolve_relative_uris=False)
        if not parsed.get("version") and not parsed.entries:
            raise _malformed("it is XML, but not a feed")
        feed = parsed.feed
        links = [link for link in feed.get("links", ()) if isinstance(link, Mapping)]
        base = web_address(feed.get("link"), url) or url
        # The icon of Atom, else the image of RSS or of a podcast, else the logo of Atom
        image = feed.get("image")
        shown = (image.get("href") or image.get("url")) if isinstance(image, Mapping) else None
        found = (web_address(one, url) for one in (feed.get("icon"), shown, feed.get("logo")))
        return FeedDocument(
            title=_title(feed.get("title")),
            link=web_address(feed.get("link"), url),
            items=tuple(_item(entry, base) for entry in parsed.entries),
            hub=next((web_address(link.get("href"), url) for link in links if link.get("rel") == "hub"), None),
            topic=next((web_address(link.get("href"), url) for link in links if link.get("rel") == "self"), None),
            icon=next(filter(None, found), None),
            ttl=60.0 * (_length(feed.get("ttl")) or 0),
            left_out=left_out,
        )
    except SourceError:
        raise
    except Exception as error:  # feedparser raises errors of any type for hostile documents
        raise _malformed("feedparser cannot read it") from error


def decode(body: bytes, content_type: str = "") -> str:
    """The text of a feed: by its byte order mark, its declaration, the header, UTF-8, and last Windows-1252."""
    if len(body) > MAX_BYTES:
        raise _malformed(f"it is larger than {MAX_BYTES:,} bytes")
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    if body[:4] == b"<\0?\0" or body[:4] == b"\0<\0?":  # UTF-16 without a mark
        return body.decode("utf-16-le" if body[0] else "utf-16-be", "replace")
    named = _DECLARED.match(body)
    charset = _CHARSET.search(content_type)
    wanted = [named.group(1).decode() if named else "", charset.group(1) if charset else "", "utf-8"]
    for name in filter(None, wanted):
        # What calls itself Latin-1 is UTF-8 if it can be read so, and Windows-1252 wherever the two differ.
        latin = name.lower() in ("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii")
        for encoding in ("utf-8", "cp1252") if latin else (name,):
            with suppress(LookupError, UnicodeError, ValueError):
                return body.decode(encoding)
    return body.decode("cp1252", "replace")


# ── XML ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _Rewriter:
    """The handlers of expat: write the document again, within the caps."""

    parts: list[str] = field(default_factory=list)
    items: list[tuple[int, int]] = field(default_factory=list)
    """Where each item begins and ends in `parts`."""
    path: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """The same elements with their prefixes, as they are written."""
    text: int = 0
    item_depth: int | None = None
    children: int = 0
    cut_depth: int | None = None
    """The depth of the element that is left out with all that it contains."""

    def start(self, name: str, attributes: list[str]) -> None:
        local = name.rpartition(":")[2].lower()
        self.path.append(local)
        self.names.append(name)
        self.text = 0
        if local in _ITEMS and self.item_depth is None:
            self.item_depth = len(self.path)
            self.items.append((len(self.parts), 0))
            self.children = 0
        self.children += 1
        too_many = self.item_depth is not None and self.children > MAX_CHILDREN
        if self.cut_depth is None and (too_many or len(self.path) > MAX_DEPTH):
            self.cut_depth = len(self.path)
        if self.cut_depth is not None:
            return
        pairs = list(zip(attributes[::2], attributes[1::2], strict=True))[:MAX_ATTRIBUTES]
        shown = "".join(f" {key}={quoteattr(value[:MAX_VALUE])}" for key, value in pairs)
        self.parts.append(f"<{name}{shown}>")

    def end(self, name: str) -> None:
        depth = len(self.path)
        self.path.pop()
        self.names.pop()
        if self.cut_depth is None:
            self.parts.append(f"</{name}>")
        elif depth == self.cut_depth:
            self.cut_depth = None
        if depth == self.item_depth:
            self.item_depth = None
            self.items[-1] = (self.items[-1][0], len(self.parts))

    def data(self, text: str) -> None:
        local = self.path[-1] if self.path else ""
        most = MAX_TEXT if local in _LONG else MAX_LINK + 1 if local in _ADDRESSES else SHORT_TEXT
        if self.text < most and self.cut_depth is None:
            self.parts.append(escape(text[: most - self.text]))
        self.text += len(text)

    def close(self) -> None:
        """Make a document that breaks off well-formed: without its incomplete item, and with the missing end tags."""
        if self.item_depth is not None:
            del self.parts[self.items.pop()[0] :]
        left_out = [depth for depth in (self.item_depth, self.cut_depth) if depth is not None]
        written = self.names[: min(left_out) - 1] if left_out else self.names
        self.parts += [f"</{name}>" for name in reversed(written)]

    def skipped(self, name: str, is_parameter: bool) -> None:
        self.data(html5.get(f"{name};", f"&{name};"))


def _rewrite(text: str) -> tuple[bytes, int]:
    """The document within the caps, and how many items were left out. Of a document that is not well-formed, what the
    tolerant parser can read: its beginning, as it is."""
    furthest, reached = None, MAX_LOOSE_BYTES
    for candidate in (text, _BARE_AMPERSAND.sub("&amp;", text)):
        rewriter = _Rewriter()
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.ordered_attributes = True
        # Entities that the document does not define are handed to us instead of being an error; nothing is loaded.
        parser.UseForeignDTD(True)
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = rewriter.start
        parser.EndElementHandler = rewriter.end
        parser.CharacterDataHandler = rewriter.data
        parser.SkippedEntityHandler = rewriter.skipped
        parser.EntityDeclHandler = _refuse_entities
        try:
            parser.Parse(re.sub(r"^<\?xml.*?\?>", "", candidate, count=1, flags=re.S).encode("utf-8"), True)
        except expat.ExpatError:
            if parser.ErrorByteIndex > reached:
                furthest, reached = rewriter, parser.ErrorByteIndex
            continue
        return _joined(rewriter)
    if furthest is not None and furthest.names:
        furthest.close()
        return _joined(furthest)
    loose = text[:MAX_LOOSE_BYTES]
    if _LONG_TAG.search(loose):
        raise _malformed("it is not well-formed, and has a tag of more than 20,000 characters")
    return re.sub(r"^<\?xml.*?\?>", "", loose, count=1, flags=re.S).encode("utf-8"), 0


def _refuse_entities(name: str, *_: Any) -> None:
    """A document type that defines entities: the definitions could grow without bound or name files."""
    raise _malformed("it defines XML entities")


def _joined(rewriter: _Rewriter) -> tuple[bytes, int]:
    parts, items = rewriter.parts, rewriter.items
    middle = items[HALF_OF_ITEMS : len(items) - HALF_OF_ITEMS] if len(items) > 2 * HALF_OF_ITEMS else []
    if middle:
        parts = [*parts[: middle[0][0]], *parts[middle[-1][1] :]]
    return "".join(parts).encode("utf-8"), len(middle)


def _item(entry: Any, base: str) -> FeedItem:
    contents = [part.get("value") for part in entry.get("content", ()) if isinstance(part, Mapping)]
    summary = plain_text(entry.get("summary") or next(filter(None, contents), ""))
    link = web_address(entry.get("link"), base)
    guid = clean(str(entry.get("id") or "").strip(), MAX_LINK) or None
    markup = next(filter(None, contents), "")
    found = _LINKED.findall(markup[-MAX_TEXT:]) if isinstance(markup, str) else []
    linked = web_address(html.unescape(found[-1]), base) if found else None
    return FeedItem(
        guid=guid,
        link=link,
        title=_title(entry.get("title")) or _first_words(summary) or link or "",
        author=_title(entry.get("author")) or None,
        published=_moment(entry.get("published_parsed")) or _moment(entry.get("updated_parsed"))
        or _written(entry.get("published")) or _written(entry.get("updated")),
        summary=summary,
        enclosures=tuple(_enclosures(entry, base))[:MAX_ENCLOSURES],
        tags=tuple(filter(None, (_title(tag.get("term")) for tag in entry.get("tags", ())[:MAX_TAGS]))),
        linked=linked,
    )  # fmt: skip


def _enclosures(entry: Any, base: str) -> Iterable[Enclosure]:
    duration = _seconds(entry.get("itunes_duration"))
    found = [*entry.get("enclosures", ()), *entry.get("media_content", ())]
    seen = set[str]()
    for one in found:
        address = web_address(one.get("href") or one.get("url"), base)
        if address and address not in seen:
            seen.add(address)
            own = _seconds(one.get("duration"))
            yield Enclosure(address, _title(one.get("type")) or None, _length(one.get("length")), own or duration)


# ── JSON Feed ───────────────────────────────────────────────────────────────────────────────────────────


def _read_json(text: str, url: str) -> FeedDocument:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed("it begins like JSON, but is not") from error
    rows = found.get("items") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise _malformed("it is JSON, but not a JSON Feed: there is no list `items`")
    rows = [row for row in rows if isinstance(row, dict)]
    middle = len(rows) - 2 * HALF_OF_ITEMS
    if middle > 0:
        rows = [*rows[:HALF_OF_ITEMS], *rows[-HALF_OF_ITEMS:]]
    hubs = found.get("hubs") if isinstance(found.get("hubs"), list) else []
    base = web_address(found.get("home_page_url"), url) or url
    return FeedDocument(
        title=_title(found.get("title")),
        link=web_address(found.get("home_page_url"), url),
        items=tuple(_json_item(row, base) for row in rows),
        hub=next((web_address(hub.get("url"), url) for hub in hubs if isinstance(hub, dict)), None),
        topic=web_address(found.get("feed_url"), url),
        icon=web_address(found.get("favicon"), url) or web_address(found.get("icon"), url),
        left_out=max(middle, 0),
    )


def _json_item(row: dict[str, Any], base: str) -> FeedItem:
    contents = (row.get("summary"), row.get("content_text"), row.get("content_html"))
    summary = plain_text(next((text for text in contents if isinstance(text, str) and text), ""))
    authors = row.get("authors") if isinstance(row.get("authors"), list) else [row.get("author")]
    link = web_address(row.get("url"), base) or web_address(row.get("external_url"), base)
    guid = row.get("id")
    files = row.get("attachments") if isinstance(row.get("attachments"), list) else []
    tags = row.get("tags") if isinstance(row.get("tags"), list) else []
    return FeedItem(
        guid=clean(str(guid).strip(), MAX_LINK) or None if isinstance(guid, str | int) else None,
        link=link,
        title=_title(row.get("title")) or _first_words(summary) or link or "",
        author=next((_title(one.get("name")) for one in authors or () if isinstance(one, dict)), None) or None,
        published=_written(row.get("date_published")) or _written(row.get("date_modified")),
        summary=summary,
        enclosures=tuple(
            Enclosure(address, _title(one.get("mime_type")) or None, _length(one.get("size_in_bytes")),
                      _length(one.get("duration_in_seconds")))
            for one in (files or ())[:MAX_ENCLOSURES]
            if isinstance(one, dict) and (address := web_address(one.get("url"), base))
        ),
        tags=tuple(filter(None, (_title(tag) for tag in (tags or ())[:MAX_TAGS]))),
    )  # fmt: skip


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────


def plain_text(markup: Any) -> str:
    """HTML as text in one line, cut."""
    if not isinstance(markup, str):
        return ""
    text = markup[: 4 * MAX_TEXT]
    for ending, hidden in _HIDDEN:
        last = text.rfind(ending)
        # Behind the last ending each beginning would be searched to the end of the text, in vain.
        end = (text.find(">", last) + 1 or len(text)) if last >= 0 else 0
        text = hidden.sub(" ", text[:end]) + text[end:]
    return clean(" ".join(html.unescape(_TAG.sub(" ", text)).split()), TEXT_CHARS)


def _title(value: Any) -> str:
    return plain_text(value)[:TITLE_CHARS] if isinstance(value, str) else ""


def _first_words(text: str) -> str:
    if len(text) <= TITLE_WORDS:
        return text
    return text[:TITLE_WORDS].rpartition(" ")[0] + " …"


def web_address(value: Any, base: str) -> str | None:
    """The address of a link; None for what is not http or https."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_LINK:
        return None
    try:
        found = urljoin(base, clean(value.strip(), MAX_LINK))
        parts = urlsplit(found)
    except ValueError:
        return None
    return found if parts.scheme in ("http", "https") and parts.netloc else None


def _moment(parsed: Any) -> float | None:
    """Seconds since 1970 of feedparser's UTC time."""
    try:
        return clock.parse("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z".format(*parsed[:6])) if parsed else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _written(value: Any) -> float | None:
    try:
        return clock.parse(value.strip()) if isinstance(value, str) and value.strip() else None
    except (ValueError, OverflowError):
        return None


def _length(value: Any) -> int | None:
    try:
        number = int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 2**53 else None


def _seconds(value: Any) -> int | None:
    """A podcast's duration: seconds, or hours, minutes and seconds."""
    parts = str(value or "").strip().split(":")
    numbers = [_length(part) for part in parts[:3]]
    if len(parts) > 3 or any(number is None for number in numbers) or not value:
        return None
    total = 0
    for number in numbers:
        total = 60 * total + (number or 0)
    return total


def _malformed(why: str) -> SourceError:
    return SourceError(f"the response is not a feed: {why}", kind="malformed")
