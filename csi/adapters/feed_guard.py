"""What a feed must be before it is parsed: XML without a DTD, within caps on depth, attributes and entries.

feedparser takes minutes over one tag with a megabyte of attributes (FACTS 9); expat counts them in milliseconds.
"""

from xml.parsers import expat

from csi.errors import SourceError

MAX_DEPTH = 32
MAX_ATTRIBUTES = 64
MAX_ELEMENTS = 50_000
MAX_ENTRIES = 1_000


class _Counter:
    """Counts while expat reads; raises as soon as a cap is passed."""

    def __init__(self) -> None:
        self.depth = self.elements = self.entries = 0
        self.root = ""

    def start(self, name: str, attributes: list[str]) -> None:
        self.root = self.root or name
        self.depth += 1
        self.elements += 1
        self.entries += name.rpartition(":")[2] == "entry"
        if self.depth > MAX_DEPTH or len(attributes) > 2 * MAX_ATTRIBUTES:
            raise SourceError("the feed is refused: its elements nest too deep or have too many attributes")
        if self.elements > MAX_ELEMENTS or self.entries > MAX_ENTRIES:
            raise SourceError("the feed is refused: it has too many entries")

    def end(self, name: str) -> None:
        self.depth -= 1

    def doctype(self, name: str, *_: object) -> None:
        if name.lower() == "html":
            raise SourceError("the answer is not a feed: it is an HTML page")
        raise SourceError("the feed is refused: it declares a document type")


def check(body: bytes) -> None:
    """Raises SourceError when the body is not a feed that can be parsed safely."""
    counter = _Counter()
    parser = expat.ParserCreate()
    parser.ordered_attributes = True
    parser.StartElementHandler = counter.start
    parser.EndElementHandler = counter.end
    parser.StartDoctypeDeclHandler = counter.doctype
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise SourceError(f"the answer is not a feed: {_words(body, error)}") from error
    if counter.root.rpartition(":")[2] != "feed":
        raise SourceError("the answer is XML, but not an Atom feed")


def _words(body: bytes, error: Exception) -> str:
    start = body.lstrip()[:200].lower()
    if not start:
        return "it is empty"
    if start.startswith((b"<!doctype html", b"<html")):
        return "it is an HTML page"
    return f"it is not well-formed XML ({error})"
