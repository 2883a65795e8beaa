"""Hostile documents end in one clean error, within two seconds of CPU, whatever they are made of."""

import codecs
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csi.adapters.base import Position
from csi.adapters.youtube import feed_guard
from csi.adapters.youtube_channel_rss import YouTubeChannelRSSAdapter
from csi.errors import MalformedItem, SourceError
from tests.fakes.stub_net import StubNet, reply, tools
from tests.fakes.youtube_feed import HEAD, entry, feed

GOOD = feed(*(entry(f"Title {number}", "word " * 200, video=f"v{number}") for number in range(15)))
BOMB = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
ATTRIBUTES = " ".join(f'a{n}="{n}"' for n in range(60))
MEGABYTE = 1024 * 1024


def read(body: bytes):
    adapter = YouTubeChannelRSSAdapter(config={}, tools=tools(StubNet([reply(body)]), key=None))
    return adapter, adapter.read(Position("UC1")).items


def with_prolog(prolog: str, title: str = "&l9;") -> bytes:
    return feed(entry(title)).replace(b"?>\n", f"?>\n{prolog}\n".encode(), 1)


def many(element: str, count: int, text: str = "x") -> bytes:
    """One entry with so many elements, each with a text of its own."""
    return feed(entry(extra="".join(f"<{element}>{text}{n}</{element}>" for n in range(count))))


REFUSED = {
    "entity bomb": with_prolog(f'<!DOCTYPE feed [<!ENTITY l0 "lol">{BOMB}]>'),
    "quadratic entities": with_prolog(f'<!DOCTYPE feed [<!ENTITY l9 "{"a" * 100_000}">]>', "&l9;" * 1_000),
    "external entity": with_prolog('<!DOCTYPE feed [<!ENTITY l9 SYSTEM "file:///etc/passwd">]>'),
    "external DTD": with_prolog('<!DOCTYPE feed SYSTEM "http://127.0.0.1:9/x.dtd">', "t"),
    "parameter entity": with_prolog('<!DOCTYPE feed [<!ENTITY % p SYSTEM "http://127.0.0.1:9/"> %p;]>', "t"),
    "DTD with nothing in it": with_prolog("<!DOCTYPE feed>", "t"),
    "undefined entity": feed(entry("&nbsp;")),
    "attributes": feed(entry(attributes=" " + " ".join(f'a{n}="1"' for n in range(100_000)))),
    "the same attribute twice": feed(entry(attributes=' a="1" a="2"')),
    "a long attribute": feed(entry(attributes=f' a="{"x" * 100_000}"')),
    "attributes on many elements": feed(entry(extra=f"<x {ATTRIBUTES}/>" * 400)),
    "namespaces": feed(entry(attributes=" " + " ".join(f'xmlns:a{n}="urn:{n}"' for n in range(20_000)))),
    "depth": feed("<a>" * 10_000 + "</a>" * 10_000),
    "depth in an entry": feed(entry(extra="<a>" * 10_000 + "</a>" * 10_000)),
    "entries": feed(entry() * 50_000),
    "strange entries": feed(entry(extra="<x/>") * 2_000),
    "elements": many("x", 40_000),
    "categories": many("category", 5_000),
    "keywords in a list": feed(entry(extra=f"<media:keywords>{','.join(map(str, range(60_000)))}</media:keywords>")),
    "keywords in many lists": feed(
        entry(extra="".join(f"<media:keywords>{n},{n + 0.5}</media:keywords>" for n in range(4_000)))
    ),
    "itunes keywords": feed(
        entry(
            extra='<i:keywords xmlns:i="http://www.itunes.com/dtds/podcast-1.0.dtd">'
            f"{','.join(map(str, range(60_000)))}</i:keywords>"
        )
    ),
    "tags": feed(entry(extra=f"<tags>{','.join(map(str, range(60_000)))}</tags>")),
    "four megabytes of text": feed(entry(description="x" * 4 * MEGABYTE)),
    "four megabytes of strange text": feed(entry(extra="<x/>", description="x" * 4 * MEGABYTE)),
    "a strange text": feed(entry(extra=f"<x>{'x' * 100_000}</x>")),
    "four megabytes of blanks": b" " * 4 * MEGABYTE,
    "blanks before the root": HEAD.encode().replace(b"?>\n", b"?>" + b" " * 3 * MEGABYTE) + b"</feed>",
    "an unbound prefix": feed(entry(extra="<unbound:tag>x</unbound:tag>")),
    "not closed": GOOD.replace(b"</feed>", b""),
    "UTF-7": b"+ADw-?xml version=+ACI-1.0+ACI-?+AD4-",
    "UTF-7 declared": feed(entry()).replace(b"UTF-8", b"UTF-7"),
    "UTF-16": GOOD.decode().replace("UTF-8", "UTF-16").encode("utf-16"),
    "UTF-16 big endian without a mark": GOOD.decode().encode("utf-16-be"),
    "UTF-32": GOOD.decode().replace("UTF-8", "UTF-32").encode("utf-32"),
    "UTF-16 declared, UTF-8 in it": GOOD.replace(b"UTF-8", b"UTF-16"),
    "EBCDIC": GOOD.decode().encode("cp037", "replace"),
    "an unknown encoding": GOOD.replace(b"UTF-8", b"x-made-up"),
    "Shift-JIS": feed(entry("テスト")).decode().replace("UTF-8", "Shift_JIS").encode("shift_jis"),
    "Latin-1 in UTF-8": feed(entry("caf@")).replace(b"caf@", b"caf\xe9"),
    "overlong UTF-8": feed(entry("@")).replace(b"@", b"\xc0\xbcscript>"),
    "a surrogate": feed(entry("@")).replace(b"@", b"\xed\xa0\x80"),
    "a NUL": feed(entry("@")).replace(b"@", b"\x00"),
    "NULs only": b"\x00" * 10_000,
    "a NUL by reference": feed(entry("&#0;")),
    "a control character": feed(entry("\x01")),
    "empty": b"",
    "a mark and nothing": codecs.BOM_UTF8,
    "white": b" \n\t ",
    "HTML": b"<!DOCTYPE html><html><body>Before you continue to YouTube</body></html>",
    "HTML without a doctype": b"<html><head><title>x</title></head></html>",
    "HTML that is XML": b'<html xmlns="http://www.w3.org/1999/xhtml"><body>x</body></html>',
    "PNG": b"\x89PNG\r\n\x1a\n" + b"\x00\x01\x02" * 1000,
    "gzip": b"\x1f\x8b\x08\x00" + b"\x00" * 100,
    "JSON": b'{"error": {"code": 404}}',
    "JSON list": b"[" * 100_000,
    "a path": b"/etc/passwd",
    "a URL": b"http://127.0.0.1:9/feed.xml",
    "a file URL": b"file:///etc/passwd",
    "RSS": b'<rss version="2.0"><channel><item><title>x</title></item></channel></rss>',
    "another feed": feed("<entry><id>1</id><title>T</title></entry>"),
    "a thousand comments": b"<!--" * 1_000,
    "a long comment": b"<feed><!--" + b"-" * 1_000_000,
    "CDATA without an end": feed(entry("<![CDATA[")),
    "instructions": b"<?a " + b"?" * 1_000_000,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_document_is_one_clean_error(name):
    started = time.process_time()
    with pytest.raises(SourceError) as caught:
        read(REFUSED[name])
    assert time.process_time() - started < 2
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    assert caught.value.kind == "malformed"
    assert "passwd" not in str(caught.value)


COSTLY = {
    "as many elements as are allowed": many("x", feed_guard.MAX_ELEMENTS - 100),
    "as many entries as are allowed": feed(entry(extra="<x/>") * 180),
    "as many categories as are allowed": many("category", feed_guard.MAX_TAGS),
    "as many keywords as are allowed": feed(
        entry(
            extra="".join(
                f"<media:keywords>{','.join(f'{n}{k}' for k in range(150))[:490]}</media:keywords>"
                for n in range(feed_guard.MAX_KEYWORDS)
            )
        )
    ),
    "a date that is no date": feed(entry(published="1" * 490, updated="9-" * 240, extra="<x/>")),
    "a date of letters": feed(entry(published="Mon, " * 95, extra="<x/>")),
    "as much text as is allowed": feed(entry(extra="<x/>", description="<![CDATA[" + "<b>&amp; " * 2_000 + "]]>") * 60),
    "links": feed(entry(extra='<link rel="alternate" href="https://x/"/>' * 5_500)),
    "authors": feed(entry(extra="<author><name>a@b.c</name></author>" * 2_900)),
    "contents": feed(entry(extra="<content>x</content>" * 4_000)),
    "sources": feed(entry(extra="<source><title>x</title></source>" * 2_900)),
    "points": feed(entry(extra=f'<g:polygon xmlns:g="http://www.georss.org/georss">{"1 2 " * 120}</g:polygon>' * 40)),
    "attributes, as many as are allowed": feed(entry(extra=f"<x {ATTRIBUTES}/>" * 300)),
}


AUTHORS = {
    "a long name": f"<itunes:author>{'1' * 19_900}</itunes:author>",
    "a name of dates": f"<dc:creator>{'2024-01-01T' * 1_800}</dc:creator>",
    "a name of addresses": f"<author><name>{'a@b.c ' * 3_000}</name></author>",
}


@pytest.mark.parametrize("name", AUTHORS)
def test_a_name_that_would_take_minutes_is_refused(name):
    spaces = 'xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    body = feed(entry(extra=AUTHORS[name].replace(">", f" {spaces}>", 1)) * 100)
    started = time.process_time()
    with pytest.raises(SourceError, match="a text in it is too long"):
        read(body)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("name", COSTLY)
def test_what_the_caps_let_through_is_read_within_two_seconds(name):
    started = time.process_time()
    read(COSTLY[name])
    assert time.process_time() - started < 2


def test_giant_texts_are_capped_and_the_others_flow():
    body = feed(entry("T" * 200_000, "d" * 500_000, video="v1"), entry("Fine", video="v2"))
    adapter, items = read(body)
    events = [adapter.normalize(raw) for raw in items]
    assert [len(event.subject["title"]) for event in events] == [500, 4]
    assert len(events[0].subject["description"]) == 5_000
    assert max(len(str(raw.payload)) for raw in items) < 20_000


def test_a_feed_cut_off_anywhere_is_an_error():
    for end in range(0, len(GOOD) - 8, 500):
        with pytest.raises(SourceError):
            read(GOOD[:end])


@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(suppress_health_check=list(HealthCheck))
def test_no_bytes_at_all_end_in_anything_but_a_source_error(junk):
    for body in (junk, feed(entry()).replace(b"A title", junk), HEAD.encode() + junk, junk + GOOD):
        try:
            adapter, items = read(body)
        except SourceError:
            continue
        for raw in items:
            try:
                adapter.normalize(raw)
            except MalformedItem:
                assert adapter.item_key(raw).startswith("youtube:malformed:")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
        max_leaves=12,
    ),
    st.sampled_from(["entry", "item", "yt_videoid", "snippet", "facts"]),
)
@settings(suppress_health_check=list(HealthCheck))
def test_no_payload_makes_an_adapter_fail_but_as_malformed(value, place):
    from csi.adapters.base import RawEvent
    from csi.adapters.youtube_playlist import YouTubePlaylistAdapter

    whole: dict[str, object] = {
        "entry": {"yt_videoid": "v", "title": "T", place: value},
        "channel_id": value,
        place: value,
    }
    for adapter in (YouTubeChannelRSSAdapter(config={}), YouTubePlaylistAdapter(config={})):
        for occurred in ("2026-02-22T12:00:00Z", "", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", str(value)):
            with suppress(MalformedItem):
                adapter.normalize(RawEvent(adapter.name, "x", whole, occurred))
