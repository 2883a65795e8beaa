"""What a person types or pastes (fault case 67), and lists from elsewhere."""

import string
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi.adapters.youtube.references import Reference, UnknownReference, parse_reference
from csi.admin import channel_lists
from csi.admin.channel_lists import UnreadableList, read_list, write_opml

DATA = Path(__file__).parents[1] / "data" / "imports"
UC = "UC" + "a1_-" * 5 + "bb"
PL = "PLabcdefghijklmnop"
V = "dQw4w9WgXcQ"
WEB = "https://www.youtube.com"


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (UC, "channel", UC),
        (f"  {UC}\n", "channel", UC),
        (f"<{WEB}/channel/{UC}>", "channel", UC),
        (f"{WEB}/channel/{UC}/videos?view=0", "channel", UC),
        (f"youtube.com/channel/{UC}", "channel", UC),
        (f"http://m.youtube.com/channel/{UC}", "channel", UC),
        (f"{WEB}/feeds/videos.xml?channel_id={UC}", "channel", UC),
        (f"{WEB}/feeds/videos.xml?playlist_id={PL}", "playlist", PL),
        (f"{WEB}/feeds/videos.xml?user=someone", "user", "someone"),
        ("@NASA", "handle", "@NASA"),
        (f"{WEB}/@NASA/shorts", "handle", "@NASA"),
        (f"{WEB}/@%C3%9Cnicode", "handle", "@Ünicode"),
        (f"{WEB}/c/GoogleDevelopers", "custom", "GoogleDevelopers"),
        (f"{WEB}/user/someone", "user", "someone"),
        (PL, "playlist", PL),
        ("UU" + UC[2:], "playlist", "UU" + UC[2:]),
        (f"{WEB}/playlist?list={PL}", "playlist", PL),
        (f"https://music.youtube.com/playlist?list={PL}", "playlist", PL),
        (f"{WEB}/watch?v={V}&list={PL}&index=2", "playlist", PL),
        (f"https://youtu.be/{V}?list={PL}", "playlist", PL),
        (f"{WEB}/watch?v={V}", "video", V),
        (f"{WEB}/watch?v={V}&list=RD{V}", "video", V),  # a mix is made up for each viewer
        (f"{WEB}/watch?v={V}&list=WL", "video", V),
        (f"https://youtu.be/{V}?t=42", "video", V),
        (f"{WEB}/shorts/{V}", "video", V),
        (f"{WEB}/live/{V}?feature=share", "video", V),
        (f"https://www.youtube-nocookie.com/embed/{V}", "video", V),
    ],
)
def test_what_is_accepted(text, kind, value):
    assert parse_reference(text) == Reference(kind, value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a channel"),
        ("UCshort", "UC and 22 characters"),
        (V, "give its URL"),
        ("WL", "watch-later"),
        (f"{WEB}/playlist?list=LL", "liked videos"),
        ("NASA channel", "not a channel"),
        (f"https://example.com/channel/{UC}", "'example.com' is not YouTube"),
        (f"https://www.youtube.com.example.com/channel/{UC}", "is not YouTube"),
        (f"https://youtube.com@example.com/channel/{UC}", "is not YouTube"),
        (f"{WEB}/feed/subscriptions", "not a channel, playlist or video"),
        (f"{WEB}/watch?v={V}%0d%0aHost:x", "no usable video id"),
        (f"{WEB}/channel/UC..%2f..%2fadmin", "no usable channel id"),
        ("@a/b", "no usable handle"),
        ("@" + "x" * 40, "no usable handle"),
        ("file:///etc/passwd", "not a web address"),
        ("javascript:alert(1)//", "not a URL"),
        ("https://[::1", "not a URL"),
        ("../../etc/passwd", "is not YouTube"),
        ("\x1b[31mUC", "not a channel"),
        ("x" * 5_000, "not a channel"),
    ],
)
def test_what_is_refused_and_why(text, said):
    with pytest.raises(UnknownReference, match="") as caught:
        parse_reference(text)
    assert said in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_stand_in_for_youtube_may_be_named():
    with pytest.raises(UnknownReference):
        parse_reference(f"http://127.0.0.1:8090/channel/{UC}")
    assert parse_reference(f"http://127.0.0.1:8090/channel/{UC}", ["127.0.0.1:8090"]).value == UC
    with pytest.raises(UnknownReference):
        parse_reference("http://127.0.0.1:8091/@user", ["127.0.0.1:8090"])


@given(st.text(max_size=80) | st.text(alphabet=string.printable, max_size=80).map(lambda text: f"{WEB}/{text}"))
def test_only_ids_and_names_get_out(text):
    try:
        found = parse_reference(text)
    except UnknownReference:
        return
    assert not set(found.value) & set("/?#&%:\\ \r\n\0'\"<>")
    assert len(found.value) <= 100


# --- lists from elsewhere


@pytest.mark.parametrize(
    ("file", "refs", "names"),
    [
        ("takeout_en.csv", 3, ["Rust in Practice", "C# Academy", "Ünïcode, Inc."]),
        ("takeout_de.csv", 2, ["Der Kanal", "Noch einer"]),
        ("takeout_ja.csv", 2, ["日本語チャンネル", "別のチャンネル"]),
        ("excel.csv", 2, ["Mit Semikolon", "Noch einer"]),
        ("readers.opml", 3, ["First", "A playlist", "Old style"]),
        ("plain.txt", 5, [None] * 5),
    ],
)
def test_lists_of_many_kinds(file, refs, names):
    entries = read_list((DATA / file).read_bytes())
    found = [entry for entry in entries if entry.reference]
    assert len(found) == refs
    assert [entry.name for entry in found] == names


def test_a_list_from_a_spreadsheet_of_western_windows_keeps_its_names():
    (entry,) = read_list("Kanal-ID;Kanaltitel\r\nUCaaaaaaaaaaaaaaaaaaaaaa;Müßiggang\r\n".encode("cp1252"))
    assert entry.name == "Müßiggang"


def test_every_line_that_cannot_be_used_is_named_with_its_number():
    entries = read_list((DATA / "plain.txt").read_bytes())
    bad = [(entry.line, entry.text) for entry in entries if entry.error]
    assert bad == [(9, "https://example.com/feed.xml"), (10, "UCtooshort")]
    (blog,) = [entry for entry in read_list((DATA / "readers.opml").read_bytes()) if entry.error]
    assert (blog.line, "is not YouTube" in blog.error) == (13, True)


def test_a_takeout_in_utf16_is_read():
    text = (DATA / "takeout_de.csv").read_text("utf-8")
    assert len(read_list(text.encode("utf-16"))) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "contains no channel"),
        (b"\n \n# only a comment\n", "contains no channel"),
        (b"\x00\x01\x02", "not text"),
        (b"<html><body></html>", "not well-formed"),
        (b"<rss></rss>", "XML, but not OPML"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]><opml/>', "document type"),
        (b"<opml>" + b"<outline>" * 60, "nests too deep"),
        (b"x" * (channel_lists.MAX_BYTES + 1), "larger than"),
        (b"UC\n" * (channel_lists.MAX_ENTRIES + 1), "more than"),
        (b'"' + b"x" * 200_000, "cannot be read|can be read"),
    ],
)
def test_a_file_that_is_no_list_is_refused_whole(content, said):
    with pytest.raises(UnreadableList, match=said):
        read_list(content)


def test_an_export_can_be_imported_again():
    names = ["Plain", 'Quotes " & <tags>', "Control \x1b[31m and\nnewline", "日本"]
    rows = [
        (name, f"{WEB}/feeds/videos.xml?channel_id=UC{number:022d}", WEB, None) for number, name in enumerate(names)
    ]
    entries = read_list(write_opml(rows, "Mine").encode())
    assert [entry.reference.value for entry in entries] == [f"UC{number:022d}" for number in range(4)]
    assert [entry.name for entry in entries] == ["Plain", 'Quotes " & <tags>', "Control [31m and newline", "日本"]


@given(st.binary(max_size=400))
def test_any_bytes_are_a_list_or_refused(content):
    with suppress(UnreadableList):
        assert all(entry.reference or entry.error for entry in read_list(content))
