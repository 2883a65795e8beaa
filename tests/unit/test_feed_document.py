"""Any feed: formats, encodings, odd and hostile documents, and the caps that keep time and memory bounded."""

import codecs
import contextlib
import json
import time

import pytest

from csi.adapters import feed_document
from csi.adapters.feed_document import Enclosure, FeedItem, read_feed
from csi.errors import SourceError

URL = "https://blog.example.org/feed.xml"
ITEM = """<item><guid>g{0}</guid><title>Title {0}</title><link>https://blog.example.org/{0}</link>
<pubDate>Tue, 10 Jun 2003 04:00:00 GMT</pubDate><description>{1}</description></item>"""


def rss(inner: str, attributes: str = "") -> bytes:
    return f"<rss version='2.0'{attributes}><channel><title>A blog</title>{inner}</channel></rss>".encode()


def one(body: bytes, content_type: str = "") -> FeedItem:
    (item,) = read_feed(body, content_type, URL).items
    return item


def test_rss_2():
    item = one(rss(ITEM.format(1, "&lt;p&gt;Hello &amp;amp; goodbye&lt;/p&gt;")))
    expected = FeedItem("g1", "https://blog.example.org/1", "Title 1", None, 1_055_217_600.0, "Hello & goodbye")
    assert item == expected


def test_atom_with_relative_links_an_author_and_a_hub():
    found = read_feed(
        b"""<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>T</title>
        <link href="https://blog.example.org/"/><link rel="hub" href="https://hub.example.org/"/>
        <link rel="self" href="https://blog.example.org/feed.xml"/>
        <entry><id>urn:1</id><title type="html">A &lt;b&gt;bold&lt;/b&gt; one</title><link href="/posts/1"/>
        <author><name>Ann</name></author><updated>2026-02-22T12:00:00Z</updated><content>Text</content></entry></feed>""",
        "",
        URL,
    )
    assert (found.title, found.hub, found.topic) == ("T", "https://hub.example.org/", URL)
    (item,) = found.items
    assert (item.guid, item.link, item.title) == ("urn:1", "https://blog.example.org/posts/1", "A bold one")
    assert (item.author, item.published, item.summary) == ("Ann", 1_771_761_600.0, "Text")


def test_json_feed():
    document = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": "J",
        "items": [
            {
                "id": 7,
                "url": "/7",
                "content_html": "<p>Some text</p>",
                "date_published": "2026-02-22T12:00:00+01:00",
                "authors": [{"name": "Ann"}],
                "attachments": [{"url": "/a.mp3", "mime_type": "audio/mpeg", "size_in_bytes": 9}],
            }
        ],
    }
    item = one(json.dumps(document).encode())
    assert (item.guid, item.link, item.title) == ("7", "https://blog.example.org/7", "Some text")
    assert (item.published, item.author) == (1_771_758_000.0, "Ann")
    assert item.enclosures == (Enclosure("https://blog.example.org/a.mp3", "audio/mpeg", 9),)


def test_a_podcast():
    inner = """<item><guid>e1</guid><title>Episode</title><itunes:duration>1:02:03</itunes:duration>
    <enclosure url="https://cdn.example.org/1.mp3" type="audio/mpeg" length="many"/></item>"""
    item = one(rss(inner, " xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'"))
    assert item.enclosures == (Enclosure("https://cdn.example.org/1.mp3", "audio/mpeg", None, 3723),)


def test_an_item_without_a_title_gets_the_first_words_of_its_text():
    item = one(rss("<item><guid>1</guid><description>" + "word " * 60 + "</description></item>"))
    assert item.title.startswith("word word")
    assert len(item.title) <= 102


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (codecs.BOM_UTF8 + rss(ITEM.format("ü", "")), ""),
        (rss(ITEM.format("ü", "")).decode().encode("utf-16"), ""),
        (rss(ITEM.format("ü", "")).decode().encode("utf-32"), ""),
        (b"<?xml version='1.0' encoding='iso-8859-1'?>" + rss(ITEM.format("ü", "")).decode().encode("latin-1"), ""),
        (b"<?xml version='1.0' encoding='utf-8'?>" + rss(ITEM.format("ü", "")).decode().encode("cp1252"), ""),
        (rss(ITEM.format("ü", "")).decode().encode("cp1252"), "text/xml; charset=windows-1252"),
        (b"<?xml version='1.0' encoding='no-such'?>" + rss(ITEM.format("ü", "")), ""),
        (b"\n \r\n" + rss(ITEM.format("ü", "")), ""),
    ],
    ids=["bom", "utf-16", "utf-32", "declared", "utf-8 that is not", "header", "unknown", "leading newline"],
)
def test_encodings(body, content_type):
    assert one(body, content_type).title == "Title ü"


@pytest.mark.parametrize(
    ("body", "title"),
    [
        (rss("<item><title>Fish & chips</title><guid>1</guid></item>"), "Fish & chips"),
        (rss("<item><title>a&nbsp;b</title><guid>1</guid></item>"), "a b"),
        (b"<rss version='2.0'><channel><item><title>never closed</title><guid>1</guid>", "never closed"),
        (b"<!DOCTYPE rss SYSTEM 'file:///etc/passwd'>" + rss("<item><title>x</title></item>"), "x"),
    ],
    ids=["bare ampersand", "html entity", "cut", "external document type"],
)
def test_documents_that_are_not_well_formed_are_read_as_far_as_possible(body, title):
    assert one(body).title == title


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>Hello</body></html>", "HTML page"),
        (b'{"items": 5}', "not a JSON Feed"),
        (b"{" * 100_000, "not"),
        (b"<x><y/></x>", "not a feed"),
        (b"<!DOCTYPE r [<!ENTITY a 'aaa'>]><rss><channel><item><title>&a;</title></item></channel></rss>", "entities"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 500, "not a feed"),
        (b"x" * (feed_document.MAX_BYTES + 1), "larger"),
        (b"<rss><channel><item " + b"a='b' " * 20_000 + b"<broken", "20,000"),
    ],
)
def test_what_is_not_a_feed_is_named(body, words):
    with pytest.raises(SourceError, match=words) as caught:
        read_feed(body, "", URL)
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize(
    "end", ["", "<item><title>open & <b", "<item></channel></rss>"], ids=["cut", "open", "crossed"]
)
def test_of_a_long_feed_that_breaks_off_all_complete_items_are_read(end):
    text = "x" * 2_000
    items = "".join(f"<item><guid>{n}</guid><a:b><description>{text}</description></a:b></item>" for n in range(300))
    head = '<rss version="2.0" xmlns:a="urn:a"><channel><title>A podcast</title>'
    found = read_feed(f"{head}{items}{end}".encode(), "", URL)
    assert (found.title, [item.guid for item in found.items]) == ("A podcast", [str(n) for n in range(300)])


def test_of_very_many_items_the_first_and_the_last_are_read():
    found = read_feed(rss("".join(ITEM.format(number, "") for number in range(3_000))), "", URL)
    assert (len(found.items), found.left_out) == (1_000, 2_000)
    assert (found.items[0].guid, found.items[499].guid) == ("g0", "g499")
    assert (found.items[500].guid, found.items[-1].guid) == ("g2500", "g2999")


HOSTILE = {
    "attributes": rss("<item " + " ".join(f"a{number}='x'" for number in range(50_000)) + "><title>x</title></item>"),
    "a long name": rss(f"<item><author>{'a' * 500_000}</author><title>x</title></item>"),
    "depth": rss("<item>" + "<a>" * 50_000 + "</a>" * 50_000 + "</item>"),
    "categories": rss("<item>" + "<category>a</category>" * 20_000 + "</item>"),
    "enclosures": rss("<item>" + "<enclosure url='http://e.org/1'/>" * 20_000 + "</item>"),
    "comments in text": rss("<item><description>" + "&lt;!--" * 100_000 + "</description></item>"),
    "comments in many texts": json.dumps(
        {"items": [{"id": str(number), "content_html": "<!--<style " * 8_000} for number in range(40)]}
    ).encode(),
    "open tags": b"<rss><channel>" + b"<" * 500_000,
    "ampersands": b"<rss><channel><item><title>" + b"&" * 500_000,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_documents_take_little_time(body):
    began = time.process_time()
    with contextlib.suppress(SourceError):
        read_feed(body, "", URL)
    assert time.process_time() - began < 5, "far above what it takes; without the caps these take minutes"


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "https://[broken", "x" * 3_000]
)
def test_links_that_no_one_should_open_are_dropped(link):
    assert one(rss(f"<item><guid>1</guid><title>x</title><link>{link}</link></item>")).link is None
