"""Property tests: feeds made up, cut and doubled are read alike by both parsers, or refused."""

import warnings
from contextlib import suppress
from io import BytesIO
from xml.sax.saxutils import escape, quoteattr

import feedparser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csi.adapters.youtube import atom
from csi.errors import SourceError
from tests.fakes.youtube_feed import entry, feed


def reference(body: bytes) -> list[atom.FeedEntry]:
    """What feedparser says of the whole document, untouched by our guard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parsed = feedparser.parse(BytesIO(body), sanitize_html=False, resolve_relative_uris=False)
        return atom.plain_entries(parsed)


_XML = st.characters(exclude_categories=("Cs",), exclude_characters="\ufffe\uffff").filter(
    lambda char: char in "\t\n\r" or ord(char) >= 0x20
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
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_made_up_youtube_feeds_are_read_fast_and_equal(entries):
    body = feed(*entries)
    fast = atom.fast_entries(body)
    assert fast is not None
    assert fast == reference(body)


@given(st.lists(_entries(), min_size=1, max_size=2), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_feed_with_a_piece_cut_out_or_doubled_is_equal_or_refused(entries, data):
    body = feed(*entries)
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 60)))
    body = data.draw(st.sampled_from([body[:start] + body[end:], body[:end] + body[start:]]))
    fast = atom.fast_entries(body)
    assert fast is None or fast == reference(body)
    with suppress(SourceError):
        atom.read_entries(body)
