"""What a feed must be before feedparser sees it: UTF-8, XML without a DTD, within caps on everything it is made of.

feedparser takes minutes over one tag with a megabyte of attributes (FACTS 9), and over a long list of keywords; expat
counts them in milliseconds. It must only meet well-formed XML: its second parser, for the rest, is slower.
"""

import codecs
from xml.parsers import expat

from csi.errors import SourceError

MAX_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 32
MAX_ATTRIBUTES = 64
MAX_VALUE = 4_096
MAX_TEXT = 20_000
MAX_ELEMENTS = 6_000
MAX_ALL_ATTRIBUTES = 20_000
MAX_NAMESPACES = 100
MAX_ENTRIES = 200
MAX_TAGS = 200
MAX_KEYWORDS = 10

_TAGS = frozenset({"category", "subject"})
_KEYWORDS = frozenset({"keywords", "tags"})  # each a list of any length, which feedparser compares pair by pair
_SHORT_TEXT = 500
_LONG = frozenset({"title", "summary", "content", "description", "subtitle", "encoded", "rights", "tagline", "info"})
"""Where long text belongs. In a name, a date or an address feedparser's patterns take the square of its length."""
_ENCODINGS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})


class _Counter:
    """Counts while expat reads; raises as soon as a cap is passed."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self.parser = parser
        self.depth = self.elements = self.entries = self.tags = self.keywords = self.text = 0
        self.attributes = self.namespaces = 0
        self.root, self.begins, self.name = "", 0, ""

    def declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding and encoding.lower() not in _ENCODINGS:
            raise _refused("it is not UTF-8")

    def start(self, name: str, attributes: list[str]) -> None:
        self.name, self.text = name.rpartition(" ")[2], 0
        if not self.root:
            self.root, self.begins = self.name, self.parser.CurrentByteIndex
        self.depth += 1
        self.elements += 1
        self.attributes += len(attributes) // 2
        self.entries += self.name in ("entry", "item")
        self.tags += self.name.lower() in _TAGS
        self.keywords += self.name.lower() in _KEYWORDS
        self._check(attributes)

    def _check(self, attributes: list[str]) -> None:
        if self.depth > MAX_DEPTH or len(attributes) > 2 * MAX_ATTRIBUTES or self.attributes > MAX_ALL_ATTRIBUTES:
            raise _refused("its elements nest too deep or have too many attributes")
        if self.elements > MAX_ELEMENTS or self.entries > MAX_ENTRIES:
            raise _refused("it has too many entries")
        if self.tags > MAX_TAGS or self.keywords > MAX_KEYWORDS:
            raise _refused("it has too many categories")
        if any(len(text) > MAX_VALUE for text in attributes):
            raise _refused("an attribute is too long")

    def namespace(self, prefix: str | None, uri: str | None) -> None:
        self.namespaces += 1
        if self.namespaces > MAX_NAMESPACES:
            raise _refused("it has too many namespaces")

    def end(self, name: str) -> None:
        self.depth -= 1
        self.name, self.text = "", 0

    def data(self, text: str) -> None:
        self.text += len(text)
        if self.text > (MAX_TEXT if self.name.lower() in _LONG else _SHORT_TEXT):
            raise _refused("a text in it is too long")

    def doctype(self, name: str, *_: object) -> None:
        if name.lower() == "html":
            raise SourceError("the answer is not a feed: it is an HTML page", kind="malformed")
        raise _refused("it declares a document type")


def checked(body: bytes) -> bytes:
    """The root element as UTF-8, ready for feedparser. SourceError when the body is no feed, or not a safe one."""
    if len(body) > MAX_BYTES:
        raise _refused(f"it is larger than {MAX_BYTES:,} bytes")
    if b"\x00" in body:  # UTF-16 and UTF-32, which expat finds out by itself, are full of them
        raise _refused("it is not UTF-8")
    counter = _count(body)
    if counter.root != "feed":
        raise SourceError("the answer is XML, but not an Atom feed", kind="malformed")
    # Without what stands before the root, nothing there (a comment that looks like a DTD) can mislead feedparser.
    return body[counter.begins :]


def _count(body: bytes) -> _Counter:
    parser = expat.ParserCreate("utf-8", " ")
    counter = _Counter(parser)
    parser.ordered_attributes = True
    parser.buffer_text = True
    parser.XmlDeclHandler = counter.declaration
    parser.StartNamespaceDeclHandler = counter.namespace
    parser.StartElementHandler = counter.start
    parser.EndElementHandler = counter.end
    parser.CharacterDataHandler = counter.data
    parser.StartDoctypeDeclHandler = counter.doctype
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise SourceError(f"the answer is not a feed: {_words(body, error)}", kind="malformed") from error
    return counter


def _refused(why: str) -> SourceError:
    return SourceError(f"the feed is refused: {why}", kind="malformed")


def _words(body: bytes, error: Exception) -> str:
    start = body.removeprefix(codecs.BOM_UTF8).lstrip()[:200].lower()
    if not start:
        return "it is empty"
    if start.startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page"
    if start.startswith((b"{", b"[")):
        return "it is JSON"
    return f"it is not well-formed XML in UTF-8 ({error})"
