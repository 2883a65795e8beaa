"""Check a feed before feedparser parses it: UTF-8, well-formed XML without a DTD, within caps on size and structure.

feedparser takes minutes for one tag with a megabyte of attributes, and for a long list of keywords; expat counts them
in milliseconds. Only well-formed XML is passed on: for the rest feedparser has a second parser, which is slower still.
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
_KEYWORDS = frozenset({"keywords", "tags"})  # feedparser compares the words of each such list pair by pair
_SHORT_TEXT = 500
_LONG = frozenset({"title", "summary", "content", "description", "subtitle", "encoded", "rights", "tagline", "info"})
"""Elements that may hold long text. For a name, a date or an address, the time of feedparser's patterns grows with the
square of the length."""
_ENCODINGS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})


class _Counter:
    """Counts elements, attributes and text while expat parses; raises at the first cap that is exceeded."""

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
            raise SourceError("the response is not a feed: it is an HTML page", kind="malformed")
        raise _refused("it declares a document type")


def checked(body: bytes) -> bytes:
    """The root element as UTF-8, ready for feedparser. Raises SourceError for any other body."""
    if len(body) > MAX_BYTES:
        raise _refused(f"it is larger than {MAX_BYTES:,} bytes")
    if b"\x00" in body:  # UTF-16 or UTF-32, which expat would detect and accept
        raise _refused("it is not UTF-8")
    body = body.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n")  # XML allows nothing before its declaration
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
        raise SourceError(f"the response is not a feed: {_describe(body, error)}", kind="malformed") from error
    if counter.root != "feed":
        raise SourceError("the response is XML, but not an Atom feed", kind="malformed")
    # The part before the root is cut off: feedparser would take a comment there that looks like a DTD for one.
    return body[counter.begins :]


def _refused(why: str) -> SourceError:
    return SourceError(f"the feed is rejected: {why}", kind="malformed")


def _describe(body: bytes, error: Exception) -> str:
    start = body.removeprefix(codecs.BOM_UTF8).lstrip()[:200].lower()
    if not start:
        return "it is empty"
    if start.startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page"
    if start.startswith((b"{", b"[")):
        return "it is JSON"
    return f"it is not well-formed XML in UTF-8 ({error})"
