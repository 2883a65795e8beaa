"""Real captures through the adapters: feeds and pages become valid events, hostile files become clean errors."""

import json
import re
import time
from pathlib import Path

import pytest

from csi.adapters.base import Position, RawEvent, Tools
from csi.adapters.youtube import video_fields
from csi.adapters.youtube.api_errors import api_json
from csi.adapters.youtube_channel_rss import YouTubeChannelRSSAdapter
from csi.adapters.youtube_playlist import YouTubePlaylistAdapter
from csi.errors import MalformedItem, SourceError
from csi.net import HttpHeaders, HttpResponse

REQUIRED = {"platform", "video_id", "channel_id", "url", "title", "published_at"}


class OneAnswer:
    """A network that knows one answer."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self.answer = HttpResponse(status, HttpHeaders(), body, "http://127.0.0.1/")

    def get(self, url: str, **_: object) -> HttpResponse:
        return self.answer


def watched(body: bytes) -> str:
    """The channel that a captured feed is about; the feed's own id has lost its UC at times."""
    found = re.search(rb"(?:channel_id=|channel/)(UC[\w-]{22})", body)
    return found[1].decode() if found else "UCsXVk37bltHxD1rDPwtNM8Q"


def read_feed(body: bytes, channel: str | None = None):
    channel = channel or watched(body)
    adapter = YouTubeChannelRSSAdapter(config={}, tools=Tools(net=OneAnswer(body)))
    return adapter, adapter.read(Position(channel)).items


def feeds(corpus: Path) -> list[Path]:
    found = sorted([*corpus.glob("youtube_feed/*.xml"), *corpus.glob("youtube_feed_series/*.xml")])
    return [path for path in found if "legacy" not in path.name]


def read_page(path: Path):
    """One captured page, as if it were the whole list."""
    page = json.loads(path.read_bytes())
    page.pop("nextPageToken", None)
    tools = Tools(net=OneAnswer(json.dumps(page).encode()), secret=lambda name: "key" if "API" in name else None)
    adapter = YouTubePlaylistAdapter(config={"enrich": False}, tools=tools)
    return adapter, adapter.read(Position("PLx"))


def test_every_captured_feed_becomes_events_with_all_required_fields(corpus):
    for path in feeds(corpus):
        adapter, items = read_feed(path.read_bytes())
        assert items, path.name
        for raw in items:
            event = adapter.normalize(raw)
            assert event.subject.keys() >= REQUIRED, path.name
            assert event.dedupe_key == adapter.item_key(raw) == f"youtube:video:{event.subject['video_id']}"
            assert event.subject["channel_id"].startswith("UC"), path.name


def test_shorts_are_recognised(corpus):
    adapter, items = read_feed((corpus / "youtube_feed/nasa_2026-08_shorts_live_upcoming.xml").read_bytes())
    kinds = [adapter.normalize(raw).subject["kind"] for raw in items]
    assert kinds.count("short") == 3


def test_ids_are_stable_over_a_series_of_captures(corpus):
    seen: dict[str, str] = {}
    for path in sorted(corpus.glob("youtube_feed_series/*.xml")):
        adapter, items = read_feed(path.read_bytes())
        for raw in items:
            event = adapter.normalize(raw)
            assert seen.setdefault(event.dedupe_key, event.event_id) == event.event_id


def test_the_dead_gdata_format_is_refused(corpus):
    with pytest.raises(SourceError, match=r"no entry has a yt:videoId|is rejected"):
        read_feed((corpus / "youtube_feed/legacy_gdata_playlist_2014.xml").read_bytes())


def outcome(body: bytes):
    try:
        return read_feed(body)[1]
    except SourceError as error:
        return "error" if "\n" not in str(error) else str(error)


def test_every_hostile_document_ends_in_a_clean_error_or_no_events(corpus):
    for path in sorted(corpus.glob("malformed/*")):
        started = time.process_time()
        assert outcome(path.read_bytes()) in ((), "error"), path.name
        assert time.process_time() - started < 2, path.name


def test_the_feed_servers_404_is_said_as_such(corpus):
    body = (corpus / "youtube_feed_errors/404_2026-01-26T180121Z.html").read_bytes()
    adapter = YouTubeChannelRSSAdapter(config={}, tools=Tools(net=OneAnswer(body, 404)))
    with pytest.raises(SourceError, match="the feed answered 404"):
        adapter.read(Position("UCx"))


def test_captured_playlist_items_become_events_or_are_not_readable(corpus):
    emitted = 0
    for path in sorted(corpus.glob("youtube_api/playlistItems_*.json")):
        adapter, reading = read_page(path)
        for raw in reading.items:
            event = adapter.normalize(raw)
            emitted += 1
            assert event.subject.keys() >= REQUIRED
            assert event.occurred_at == video_fields.timestamp(raw.payload["snippet"]["publishedAt"], "publishedAt")
    assert emitted > 80


def test_a_deleted_video_is_not_readable_even_when_it_says_public(corpus):
    _, reading = read_page(corpus / "youtube_api/playlistItems_1_deleted_2017.json")
    assert reading.unreadable == 1
    assert "Deleted video" not in {raw.payload["snippet"]["title"] for raw in reading.items}


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("403_quotaExceeded_new_style.json", 403, "quota"),
        ("404_playlistNotFound.json", 404, "missing"),
        ("400_keyInvalid_old_style.json", 400, "auth"),
        ("403_accessNotConfigured.json", 403, "auth"),
    ],
)
def test_api_errors_are_decided_by_reason(corpus, name, status, kind):
    body = (corpus / "youtube_api_errors" / name).read_bytes()
    with pytest.raises(SourceError) as caught:
        api_json(HttpResponse(status, HttpHeaders(), body, "http://127.0.0.1/"))
    assert caught.value.kind == kind
    assert "<" not in str(caught.value)


def test_an_answer_that_is_not_the_apis_json_is_said_as_such():
    with pytest.raises(SourceError, match="a body that is not its JSON"):
        api_json(HttpResponse(502, HttpHeaders(), b"<html>", "http://127.0.0.1/"))


@pytest.mark.parametrize("bad", ["", "a b", "../../etc", "x?y=1", "x" * 65, None, 7, "é"])
def test_what_is_not_an_id_never_becomes_an_event(bad):
    adapter = YouTubeChannelRSSAdapter(config={})
    entry = {"yt_videoid": bad, "title": "T", "published": "2026-02-22T12:00:00Z", "yt_channelid": "UC1"}
    raw = RawEvent("youtube_channel_rss", "channel_new_upload", {"entry": entry, "channel_id": "UC1"}, "")
    with pytest.raises(MalformedItem):
        adapter.normalize(raw)


def test_the_prds_shape_of_a_feed_payload_is_accepted():
    entry = {"yt_videoid": "dQw4w9WgXcQ", "link": "https://www.youtube.com/watch?v=dQw4w9WgXcQ", "title": "T"}
    raw = RawEvent(
        "youtube_channel_rss", "channel_new_upload", {"entry": entry, "channel_id": "UCx"}, "2026-02-22T11:55:00+00:00"
    )
    event = YouTubeChannelRSSAdapter(config={}).normalize(raw)
    assert event.event_id == "src:yt:rss:dQw4w9WgXcQ:1771761300"
    assert event.subject["published_at"] == "2026-02-22T11:55:00Z"
