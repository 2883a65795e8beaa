"""The rules of RFC 4287 (Atom), with what the W3C's validator warns of, and a schema of JSON Feed 1.1: functions that
list what a document breaks."""

import json
import re
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from openapi_schema_validator import OAS31Validator

ATOM = "{http://www.w3.org/2005/Atom}"
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_URN = re.compile(r"urn:[A-Za-z0-9][A-Za-z0-9-]{1,31}:([A-Za-z0-9()+,.:=@;$_!*'-]|%[0-9A-Fa-f]{2})+")
_FEED_CHILDREN = {
    "author", "category", "contributor", "generator", "icon", "id", "link", "logo", "rights", "subtitle", "title",
    "updated", "entry",
}  # fmt: skip
_ENTRY_CHILDREN = {
    "author", "category", "content", "contributor", "id", "link", "published", "rights", "source", "summary", "title",
    "updated",
}  # fmt: skip


def atom_faults(body: bytes) -> list[str]:
    """RFC 4287, section 4: what a feed document must and must not contain."""
    if not body.startswith(b"<?xml"):
        return ["no XML declaration"]
    root = ElementTree.fromstring(body)
    if root.tag != f"{ATOM}feed":
        return [f"the root is {root.tag}"]
    faults = [*_children(root, _FEED_CHILDREN, "feed"), *_once(root, "feed", ("id", "title", "updated"))]
    if not any(link.get("rel") == "self" for link in root.findall(f"{ATOM}link")):
        faults.append("feed: no link to itself (4.1.1: SHOULD)")
    entries = root.findall(f"{ATOM}entry")
    if root.find(f"{ATOM}author") is None and any(entry.find(f"{ATOM}author") is None for entry in entries):
        faults.append("neither the feed nor every entry has an author (4.1.1)")
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    if len(ids) != len(set(ids)):
        faults.append("two entries have one id (4.1.1)")
    times = [entry.findtext(f"{ATOM}updated") for entry in entries]
    if len(times) != len(set(times)):
        faults.append("two entries have one updated (a warning: readers cannot sort them)")
    for entry in entries:
        faults += _entry_faults(entry)
    for element in root.iter():
        faults += _element_faults(element)
    return faults


def _entry_faults(entry: ElementTree.Element) -> list[str]:
    faults = [*_children(entry, _ENTRY_CHILDREN, "entry"), *_once(entry, "entry", ("id", "title", "updated"))]
    for name in ("content", "published", "rights", "source", "summary"):
        if len(entry.findall(f"{ATOM}{name}")) > 1:
            faults.append(f"entry: several {name} (4.1.2)")
    alternates = [link for link in entry.findall(f"{ATOM}link") if link.get("rel", "alternate") == "alternate"]
    if not alternates and entry.find(f"{ATOM}content") is None:
        faults.append("entry: neither an alternate link nor content (4.1.2)")
    kinds = [(link.get("type"), link.get("hreflang")) for link in alternates]
    if len(kinds) != len(set(kinds)):
        faults.append("entry: two alternate links of one type (4.1.2)")
    return faults


def _element_faults(element: ElementTree.Element) -> list[str]:
    name, text = element.tag.removeprefix(ATOM), element.text or ""
    match name:
        case "id":
            return [] if _URN.fullmatch(text) else [f"id {text!r} (4.2.6, RFC 2141)"]
        case "updated" | "published":
            return [] if _DATE.fullmatch(text) else [f"{name} {text!r} (3.3)"]
        case "link":
            href = element.get("href") or ""
            ok = urlsplit(href).scheme in ("http", "https") and " " not in href and href.isascii()
            return [] if ok else [f"link {href!r} (4.2.7)"]
        case "category":
            return [] if element.get("term") else ["category without a term (4.2.2)"]
        case "author":
            return _once(element, "author", ("name",))
        case "title" | "summary" | "content":
            kind = element.get("type", "text")
            plain = kind == "text" and not list(element)
            return [] if plain and text.strip() else [f"{name}: type {kind}, or empty, or with children (3.1, 4.1.3)"]
    return []


def _children(element: ElementTree.Element, allowed: set[str], name: str) -> list[str]:
    found = {child.tag.removeprefix(ATOM) for child in element}
    return [f"{name}: unknown element {one}" for one in sorted(found - allowed)]


def _once(element: ElementTree.Element, place: str, names: tuple[str, ...]) -> list[str]:
    counts = {name: len(element.findall(f"{ATOM}{name}")) for name in names}
    return [f"{place}: {count} × {name}, expected one" for name, count in counts.items() if count != 1]


_TEXT = {"type": "string", "minLength": 1}
_URL = {"type": "string", "pattern": "^https?://[!-~]+$"}
_TIME = {"type": "string", "pattern": f"^{_DATE.pattern}$"}
_EXTENSIONS = {"^_[A-Za-z][^.]*$": {"type": "object"}}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    """Nothing but these and extensions."""
    rest = {"patternProperties": _EXTENSIONS, "additionalProperties": False}
    return {"type": "object", "required": required, "properties": properties, **rest}


def _list(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


_AUTHORS = _list(_object([], name=_TEXT, url=_URL, avatar=_URL) | {"minProperties": 1})
_ATTACHMENT = _object(
    ["url", "mime_type"], url=_URL, mime_type=_TEXT, title=_TEXT, size_in_bytes={"type": "number"},
    duration_in_seconds={"type": "number"},
)  # fmt: skip
_ITEM = _object(
    ["id"], id=_TEXT, url=_URL, external_url=_URL, title=_TEXT, content_html=_TEXT, content_text=_TEXT, summary=_TEXT,
    image=_URL, banner_image=_URL, date_published=_TIME, date_modified=_TIME, authors=_AUTHORS,
    tags=_list(_TEXT, uniqueItems=True), language=_TEXT, attachments=_list(_ATTACHMENT),
) | {"anyOf": [{"required": ["content_html"]}, {"required": ["content_text"]}]}  # fmt: skip
JSON_FEED_SCHEMA = _object(
    ["version", "title", "items"], version={"const": "https://jsonfeed.org/version/1.1"}, title=_TEXT,
    home_page_url=_URL, feed_url=_URL, description=_TEXT, user_comment=_TEXT, next_url=_URL, icon=_URL, favicon=_URL,
    authors=_AUTHORS, language=_TEXT, expired={"type": "boolean"},
    hubs=_list(_object(["type", "url"], type=_TEXT, url=_URL)), items=_list(_ITEM),
)  # fmt: skip
"""JSON Feed 1.1, written from its specification."""


def json_feed_faults(body: bytes) -> list[str]:
    """What breaks the schema, and the one rule that a schema cannot say."""
    feed: Any = json.loads(body)
    faults = [f"{error.json_path}: {error.message}" for error in OAS31Validator(JSON_FEED_SCHEMA).iter_errors(feed)]
    ids = [item.get("id") for item in feed.get("items", [])]
    return faults + ([] if len(ids) == len(set(ids)) else ["two items have one id"])
