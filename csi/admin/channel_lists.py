"""Read and write lists of channels: OPML, Google Takeout's subscriptions.csv in any language, or one per line. Pure."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from csi.adapters.youtube.references import Reference, UnknownReference, parse_reference
from csi.errors import CsiError
from csi.ingester.text import TITLE_CHARS, clean

NAMESPACE = "urn:csi:watch"
MAX_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 10_000
MAX_LINE = 4_000
MAX_DEPTH = 50
NAME_CHARS = 200


class UnreadableList(CsiError):
    """The file is not a list of channels, or is too large."""

    exit_code = 2


@dataclass(frozen=True)
class ChannelListEntry:
    """One entry of the file: its reference, or the error."""

    line: int
    text: str
    reference: Reference | None = None
    name: str | None = None
    error: str | None = None
    exported: tuple[str, str, dict[str, Any]] | None = None
    """Source, ref and options of a watch that `csi sources export` wrote."""


def read_list(content: bytes, hosts: Iterable[str] = ()) -> list[ChannelListEntry]:
    """Every entry in order. UnreadableList when the whole file is unusable. `hosts` as in parse_reference."""
    if len(content) > MAX_BYTES:
        raise UnreadableList(f"the file is larger than {MAX_BYTES // 1024**2} MB, too large for a list of channels")
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    read = _read_opml if start == b"<" else _read_rows
    entries = read(content, tuple(hosts))
    if not entries:
        raise UnreadableList("the file contains no channel, playlist or video")
    return entries


def write_opml(entries: Iterable[tuple[str, str, str, tuple[str, str, Mapping[str, Any]] | None]], title: str) -> str:
    """OPML 2.0 from (name, feed URL, page URL, source with ref and options), as feed readers import it."""
    outlines = []
    for name, feed, page, watch in entries:
        own = ""
        if watch is not None:
            source, ref, options = watch
            kept = quoteattr(json.dumps({key: value for key, value in options.items() if value is not None}))
            own = f" csi:source={_attribute(source)} csi:ref={_attribute(ref)} csi:options={kept}"
        outlines.append(
            f'      <outline type="rss" text={_attribute(name)} title={_attribute(name)}'
            f" xmlUrl={_attribute(feed)} htmlUrl={_attribute(page)}{own}/>"
        )
    head = f"""<?xml version="1.0" encoding="UTF-8"?>
<opml version="2.0" xmlns:csi="{NAMESPACE}">
  <head><title>{title}</title></head>"""
    body = ["  <body>", f'    <outline text="{title}">', *outlines, "    </outline>", "  </body>", "</opml>"]
    return "\n".join([head, *body]) + "\n"


def _attribute(text: str) -> str:
    return quoteattr(clean(text, TITLE_CHARS).replace("\t", " ").replace("\n", " "))


class _Outlines:
    """Collects outlines with a feed or page URL, and their line numbers."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self.hosts = hosts
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.entries: list[ChannelListEntry] = []
        self.depth, self.root = 0, ""

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.root, self.depth = self.root or name, self.depth + 1
        if self.depth > MAX_DEPTH or len(self.entries) >= MAX_ENTRIES:
            raise UnreadableList(f"the OPML nests too deep or names more than {MAX_ENTRIES:,} channels")
        given = {key.lower(): value for key, value in attributes.items()}
        address = given.get("xmlurl") or given.get("htmlurl") or given.get("url")
        if name.lower() == "outline" and address:
            title = given.get("title") or given.get("text")
            entry = _entry(self.parser.CurrentLineNumber, [address], self.hosts, title)
            self.entries.append(_with_own_attributes(entry, given, title))

    def _end(self, name: str) -> None:
        self.depth -= 1

    def _doctype(self, *_: object) -> None:
        raise UnreadableList("the OPML declares a document type, which is not allowed")  # entities could expand


def _with_own_attributes(
    entry: ChannelListEntry, given: Mapping[str, str], title: str | None
) -> ChannelListEntry:  # fmt: skip
    source, ref = given.get("csi:source", ""), given.get("csi:ref", "")
    if not source or not ref:
        return entry
    try:
        options = json.loads(given.get("csi:options") or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict):
        return replace(entry, reference=None, error="csi:options is not a JSON object")
    name = clean(title or "", NAME_CHARS).replace("\n", " ").strip() or None
    return replace(entry, name=name if name != ref else None, error=None, exported=(source, ref, options))


def _read_opml(content: bytes, hosts: tuple[str, ...]) -> list[ChannelListEntry]:
    outlines = _Outlines(hosts)
    try:
        outlines.parser.Parse(content, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise UnreadableList(f"the file is not well-formed OPML ({error})") from error
    if outlines.root.lower() != "opml":
        raise UnreadableList("the file is XML, but not OPML")
    return outlines.entries


def _read_rows(content: bytes, hosts: tuple[str, ...]) -> list[ChannelListEntry]:
    """Rows of one or more cells. A first row of several cells without a reference is Takeout's header: skipped."""
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:  # saved by a spreadsheet on Windows: ids are ASCII, only names can be damaged
        text = content.decode("cp1252", errors="replace")
    if "\0" in text:
        raise UnreadableList("the file is not text")
    # Takeout writes commas; spreadsheets may have replaced them by semicolons or tabs.
    delimiter = max(",;\t", key=lambda mark: (text[:20_000].count(mark), mark == ","))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    entries, found = [], 0
    try:
        for row in reader:
            cells = [cell.strip() for cell in row if cell.strip()]
            if not cells or cells[0].startswith("#"):
                continue
            if len(cells) == 1:
                cells = [cells[0].split(" #", 1)[0].split("\t#", 1)[0].strip()]
            entry = _entry(reader.line_num, cells, hosts)
            found += 1
            if found > MAX_ENTRIES:
                raise UnreadableList(f"the file has more than {MAX_ENTRIES:,} entries")
            if found > 1 or entry.reference is not None or len(cells) == 1:
                entries.append(entry)
    except csv.Error as error:
        raise UnreadableList(f"the file cannot be read as a list ({error})") from error
    return entries


def _entry(line: int, cells: list[str], hosts: tuple[str, ...], name: str | None = None) -> ChannelListEntry:
    """The first cell that is a reference is used; the last other cell that is not a URL is its name."""
    shown, error = clean(cells[0], 100), "contains nothing that can be watched"
    for cell in cells:
        try:
            reference = parse_reference(cell, hosts) if len(cell) <= MAX_LINE else None
        except UnknownReference as refused:
            error = str(refused) if len(cells) == 1 else error
            continue
        if reference is not None:
            free = [other for other in cells if other != cell and "://" not in other]
            text = clean(name or (free[-1] if free else ""), NAME_CHARS).replace("\n", " ").strip()
            return ChannelListEntry(line, shown, reference, text or None)
    return ChannelListEntry(line, shown, error=error)
