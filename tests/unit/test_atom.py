"""The fast reader gives what feedparser gives, to the last character, or leaves the feed to it."""

import warnings
from contextlib import suppress
from io import BytesIO
from xml.sax.saxutils import escape, quoteattr

import feedparser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csi.adapters.youtube import atom, feed_guard
from csi.errors import SourceError
from tests.fakes.youtube_feed import entry, feed


def reference(body: bytes) -> list[atom.FeedEntry]:
    """What feedparser says of the whole document, untouched by our guard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parsed = feedparser.parse(BytesIO(body), sanitize_html=False, resolve_relative_uris=False)
        return atom.plain_entries(parsed)


def same(body: bytes) -> list[atom.FeedEntry]:
    """Both readers on one document: equal, whichever of them was used."""
    expected = reference(body)
    fast = atom.fast_entries(body)
    assert fast is None or fast == expected
    assert atom.slow_entries(feed_guard.checked(body)) == expected
    return expected


TITLES = [
    "plain",
    "]]&gt;",
    "a ]] b",
    "&amp;lt;b&amp;gt;",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#x1F680; &#128640; 🚀",
    "שלום עולם &#x202E;abc",
    "<![CDATA[a < b & c]]>",
    "<![CDATA[]]>tail",
    "before<!-- a comment -->after",
    "before<?pi a?>after",
    "  spaces \n\t around  ",
    "\u00a0nbsp and \u3000ideographic\u3000",
    "FÃ¼r BjÃ¶rk",
    "\u0085\u0093quoted\u0094 \u0080 100",
    "Ã\u0083Â¼",
    "naïve café",
    "&quot;&apos;&amp;",
    "",
    "   ",
    "line\r\nbreak\rreturn",
    "\u2028 \u2029 \ufeff",
    "a\u0301 combining",
    "Private video",
]


@pytest.mark.parametrize("title", TITLES)
def test_texts_are_equal_to_the_last_character(title):
    body = feed(entry(title, description=title, name=title))
    assert atom.fast_entries(body) is not None
    assert same(body)[0]["title"] == atom.fast_entries(body)[0]["title"]


def test_everything_that_is_used_is_there():
    (found,) = atom.read_entries(feed(entry()))
    assert found == {
        "yt_videoid": "v1",
        "yt_channelid": "UC1",
        "title": "A title",
        "link": "https://www.youtube.com/watch?v=v1",
        "published": "2026-02-22T11:55:00+00:00",
        "updated": "2026-02-23T11:55:00+00:00",
        "summary": "About it",
        "author": "A channel",
        "thumbnail_url": "https://i1.ytimg.com/vi/v1/hqdefault.jpg",
        "views": "42",
        "likes": "7",
    }


STRANGE = {
    "another prefix for media": feed(entry()).replace(b"media:", b"m:").replace(b"xmlns:media", b"xmlns:m"),
    "another prefix for yt": feed(entry())
    .replace(b"yt:videoId", b"y:videoId")
    .replace(b"yt:channelId", b"y:channelId")
    .replace(b"xmlns:yt", b"xmlns:y"),
    "a namespace more": feed(entry()).replace(b"<feed ", b'<feed xmlns:x="urn:x" '),
    "a namespace inside": feed(entry(extra='<x xmlns="urn:x">y</x>')),
    "a prefix for atom": feed(entry())
    .replace(b"<entry", b"<a:entry")
    .replace(b"</entry", b"</a:entry")
    .replace(b"<feed ", b'<feed xmlns:a="http://www.w3.org/2005/Atom" '),
    "an attribute on a text": feed(entry().replace("<title>", '<title type="html">')),
    "a second title": feed(entry(extra="<title>Another</title>")),
    "a second description": feed(entry(extra="<summary>Another</summary>")),
    "an email of the author": feed(entry().replace("<uri>", "<email>a@b.c</email><uri>")),
    "a link that is not https": feed(entry(link='<link rel="alternate" href="watch?v=v1"/>')),
    "a link with many slashes": feed(entry(link='<link rel="alternate" href="https:////x/y"/>')),
    "no link": feed(entry(link="")),
    "a link of another kind": feed(entry(link='<link rel="related" href="https://x/y"/>')),
    "two links": feed(entry(extra='<link rel="alternate" href="https://x/y"/>')),
    "no title": feed(entry().replace("<title>A title</title>", "")),
    "the group before the title": feed(
        entry().replace("<title>A title</title>", "").replace("</media:group>", "</media:group><title>Late</title>")
    ),
    "no thumbnail url": feed(entry(thumbnail='<media:thumbnail width="480"/>')),
    "two thumbnails": feed(entry(extra="", thumbnail='<media:thumbnail url="https://a/"/><media:thumbnail url="b"/>')),
    "statistics without views": feed(entry(statistics="<media:statistics/>")),
    "text between elements": feed(entry(extra="loose text")),
    "an element in a title": feed(entry("a <b>bold</b> title")),
    "an attribute on the entry": feed(entry(attributes=' xml:lang="de"')),
    "a base address": feed(entry(attributes=' xml:base="https://example.org/"')),
    "single quotes": feed(entry()).replace(b'version="1.0" encoding="UTF-8"', b"version='1.0' encoding='utf-8'"),
    "no declaration": feed(entry()).partition(b"?>\n")[2],
    "a byte order mark": b"\xef\xbb\xbf" + feed(entry()),
    "a comment before the feed": feed(entry()).replace(b"?>\n<feed", b"?>\n<!-- <!DOCTYPE x> -->\n<feed"),
    "a comment that eats the doctype": feed(entry()).replace(b"?>\n<feed", b"?>\n<!--\n<!ENTITY x -->\n<feed"),
    "a stylesheet": feed(entry()).replace(b"?>\n<feed", b'?>\n<?xml-stylesheet href="x.xsl"?>\n<feed'),
    "a script of a browser extension": feed(entry(), '<script xmlns="">alert(1)</script>'),
    "uppercase rel": feed(entry(link='<link rel="Alternate" href="https://www.youtube.com/watch?v=v1"/>')),
    "a tombstone": feed('<at:deleted-entry xmlns:at="http://purl.org/atompub/tombstones/1.0" ref="yt:video:v1"/>'),
}


@pytest.mark.parametrize("name", STRANGE)
def test_whatever_is_not_exactly_youtubes_goes_to_feedparser(name):
    body = STRANGE[name]
    assert atom.fast_entries(body) is None
    if name == "a comment that eats the doctype":  # feedparser itself stumbles over it; ours never sees the comment
        assert atom.slow_entries(feed_guard.checked(body)) == reference(feed(entry()))
    else:
        same(body)


def test_a_feed_with_another_prefix_is_still_youtubes():
    assert atom.read_entries(STRANGE["another prefix for yt"]) == atom.read_entries(feed(entry()))


def test_an_empty_feed_has_no_entries():
    assert atom.read_entries(feed()) == reference(feed()) == []


def test_a_feed_that_is_not_from_youtube_is_an_error():
    body = feed("<entry><id>1</id><title>T</title></entry>")
    with pytest.raises(SourceError, match="not one of YouTube's"):
        atom.read_entries(body)


# ── made-up feeds ───────────────────────────────────────────────────────────────────────────────────────

_XML = st.characters(
    exclude_categories=("Cs", "Cc"), include_characters="\t\n\r\x7f\x80", exclude_characters="\ufffe\uffff"
)
_ODD = st.sampled_from([*"&<>\"' \t\n]", "]]>", "Ã¼", "\x85", "\x93", "\xa0", "&lt;", "&amp;", "🚀", "\u202e", "é"])
_TEXT = st.lists(_ODD | st.text(_XML, max_size=8), max_size=6).map("".join)


def _written(text: str) -> st.SearchStrategy[str]:
    """One text in one of the ways XML can write it, with comments and instructions in between."""
    ways = [escape(text), "".join(f"&#{ord(char)};" for char in text)]
    if "]]>" not in text and "\r" not in text:
        ways.append(f"<![CDATA[{text}]]>")
    middle = len(text) // 2
    ways.append(f"{escape(text[:middle])}<!-- between -->{escape(text[middle:])}<?pi x?>")
    return st.sampled_from(ways)


_MARKUP = _TEXT.flatmap(_written)
_SPACE = st.sampled_from(["", " ", "\n", "\n\t  ", "<!-- c -->"])


@st.composite
def _entries(draw: st.DrawFn) -> str:
    made = entry(
        draw(_MARKUP),
        draw(_MARKUP),
        name=draw(_MARKUP),
        video=draw(_MARKUP),
        channel=draw(_MARKUP),
        published=draw(_MARKUP),
        updated=draw(_MARKUP),
        link=f'<link rel="alternate" href={quoteattr("https://www.youtube.com/" + draw(_TEXT))}/>',
        thumbnail=f"<media:thumbnail url={quoteattr(draw(_TEXT))} width={quoteattr(draw(_TEXT))}/>",
        statistics=f"<media:statistics views={quoteattr(draw(_TEXT))}/>",
        extra=draw(_SPACE),
    )
    for optional in ("updated", "published", "yt:channelId"):
        if draw(st.booleans()):
            start, _, rest = made.partition(f"<{optional}>")
            made = start + rest.partition(f"</{optional}>")[2]
    return made + draw(_SPACE)


@given(st.lists(_entries(), max_size=3))
@settings(suppress_health_check=list(HealthCheck))
def test_made_up_youtube_feeds_are_read_fast_and_equal(entries):
    body = feed(*entries)
    fast = atom.fast_entries(body)
    assert fast is not None
    assert fast == reference(body)


@given(st.lists(_entries(), min_size=1, max_size=2), st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_a_feed_with_a_piece_cut_out_or_doubled_is_equal_or_refused(entries, data):
    body = feed(*entries)
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 60)))
    body = data.draw(st.sampled_from([body[:start] + body[end:], body[:end] + body[start:]]))
    fast = atom.fast_entries(body)
    assert fast is None or fast == reference(body)
    with suppress(SourceError):
        atom.read_entries(body)
