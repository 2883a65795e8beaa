"""Every document of the corpus of feeds: none crashes, none is slow, no item is lost, values are the expected ones."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from csi import clock
from csi.adapters import feed_document
from csi.adapters.feed_document import FeedDocument, FeedItem
from csi.errors import SourceError

URL = "https://example.org/feed"
DIFFERENCES = {
    "rss_channel_item_guid_naked_markup.xml": "markup inside a guid: feedparser reads no guid, the link identifies it",
    "rss_channel_item_uri_at_protocol.xml": "a link that feedparser does not read",
}


def read(path: Path) -> FeedDocument | None:
    try:
        return feed_document.read_feed(path.read_bytes(), "", URL)
    except SourceError:
        return None


def expected_values(item: dict[str, Any], found: FeedDocument) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return value.get("value") or value.get("href") if isinstance(value, dict) else value

    title, guid = plain(item.get("title")), plain(item.get("guid") or item.get("id"))
    link = plain(item.get("link") or (item.get("links") or [None])[0])
    date = item.get("publishedParsed") or item.get("pubDateParsed") or item.get("updatedParsed")
    values = {
        "title": feed_document.plain_text(title)[:500] if title else None,
        "guid": guid.strip() if guid else None,
        "link": feed_document.web_address(link, found.link or URL) if link else None,
        "published": int(clock.parse(date)) if date and not date.startswith("0001") else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def test_every_document_of_the_corpus(corpus):
    counts: Counter[str] = Counter()
    different: dict[str, list[str]] = {}
    for path in sorted((corpus / "feeds/testdata").rglob("*")):
        if not path.is_file():
            continue
        began = time.process_time()
        found = read(path)
        assert time.process_time() - began < 1, path.name
        counts["files"] += 1
        expected_path = path.with_suffix(".json")
        if path.suffix != ".xml" or not expected_path.exists():
            continue
        expected = json.loads(expected_path.read_text())
        items = expected.get("items") or expected.get("entries") or []
        assert len(found.items if found else ()) >= len(items), f"an item is lost: {path.name}"
        for wanted, item in zip(items, found.items if found else (), strict=False):
            _compare(path, expected_values(wanted, found), item, counts, different)
    print(dict(counts), different)
    assert counts["files"] == 1091
    assert set(different) <= set(DIFFERENCES), different
    assert counts["equal"] >= 0.95 * counts["values"]


def _compare(
    path: Path, expected: dict[str, Any], item: FeedItem, counts: Counter[str], different: dict[str, list[str]]
) -> None:
    for name, value in expected.items():
        read_value = getattr(item, name)
        is_equal = value == (int(read_value) if name == "published" and read_value is not None else read_value)
        counts["values"] += 1
        counts["equal"] += is_equal
        if not is_equal:
            different.setdefault(path.name, []).append(name)
