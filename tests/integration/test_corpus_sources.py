"""Real captures over time: the fast reader against feedparser, a series of feeds through the store, a walk of pages."""

import json
import re
import warnings
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import feedparser
import pytest

from csi.adapters.base import Position
from csi.adapters.youtube import atom
from csi.adapters.youtube_channel_rss import YouTubeChannelRSSAdapter
from csi.adapters.youtube_playlist import YouTubePlaylistAdapter
from csi.errors import SourceError
from csi.store import db
from csi.store.models import Event, Watch
from tests.fakes.stub_net import StubNet, reply, tools
from tests.rigs.in_process import InProcessPipeline

KURZGESAGT = "UCsXVk37bltHxD1rDPwtNM8Q"
NOT_YOUTUBES_OWN = {"ift_madrid_2021-12.xml"}  # a browser extension left a <script> in it


def feeds(corpus: Path) -> list[Path]:
    found = sorted([*corpus.glob("youtube_feed/*.xml"), *corpus.glob("youtube_feed_series/*.xml")])
    return [path for path in found if "legacy" not in path.name]


def by_feedparser(body: bytes) -> list[atom.FeedEntry]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return atom.plain_entries(feedparser.parse(BytesIO(body), sanitize_html=False, resolve_relative_uris=False))


def test_the_reader_equals_feedparser_on_every_captured_feed(corpus):
    fast, entries = set(), 0
    for path in feeds(corpus):
        body = path.read_bytes()
        expected = by_feedparser(body)
        assert atom.read_entries(body) == expected, path.name
        fast |= {path.name} if atom.fast_entries(body) is not None else set()
        entries += len(expected)
    assert {path.name for path in feeds(corpus)} - fast == NOT_YOUTUBES_OWN
    print(f"{len(feeds(corpus))} feeds, {entries} entries, {len(fast)} read fast")


def test_a_captured_feed_cut_off_anywhere_is_an_error(corpus):
    body = (corpus / "youtube_feed/secdsm_2017-06.xml").read_bytes().rstrip()
    for end in range(0, len(body) - 1, 500):
        with pytest.raises(SourceError):
            atom.read_entries(body[:end])


def test_the_captured_headers_say_how_long_a_feed_stays_fresh(corpus):
    for path in sorted(corpus.glob("youtube_feed_series/*.headers.json")):
        headers = json.loads(path.read_bytes())["headers"]
        body = path.with_name(path.name.replace(".headers.json", ".xml")).read_bytes()
        answer = reply(body, **{name.replace("-", "_"): value for name, value in headers.items()})
        adapter = YouTubeChannelRSSAdapter(config={}, tools=tools(StubNet([answer]), now=1000.0))
        reading = adapter.read(Position(KURZGESAGT))
        assert reading.fresh_until == 1000.0 + 900 - int(headers.get("age", "0")), path.name
        assert (reading.last_modified, reading.window_full) == (None, True)
        assert reading.etag.startswith("body:"), "YouTube gives none: ours is what the bytes come to"


# ── the series, in time order, through adapter, store and ingest ────────────────────────────────────────


def captured_at(path: Path) -> float:
    moment = re.search(r"(\d{4}-\d\d-\d\dT\d{6})Z", path.name)
    assert moment is not None
    return datetime.strptime(moment[1], "%Y-%m-%dT%H%M%S").replace(tzinfo=UTC).timestamp()


def test_a_series_of_captures_emits_each_video_once_with_stable_ids(corpus, tmp_path, clock):
    captures = sorted(corpus.glob("youtube_feed_series/*.xml"), key=captured_at)
    clock.time = captured_at(captures[0]) - 60
    watch = {"first_poll": "all", "poll_interval_seconds": 300, "watchlist": [{"channel_id": KURZGESAGT}]}
    line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/x", sources={"youtube_channel_rss": watch})
    served: dict[str, str] = {}
    with db.connection():
        for path in captures:
            body = path.read_bytes()
            for entry in atom.read_entries(body):
                assert served.setdefault(entry["yt_videoid"], entry["published"]) == entry["published"]
            clock.time = max(captured_at(path), clock.time + 3601)
            line.rt.net = StubNet(
                lambda asked, body=body: reply(body) if asked.path.endswith(".xml") else reply(b"", 500)
            )
            line.rt.adapters.clear()
            line.run_without_delivery()
            assert Watch.get().last_error is None, path.name
        rows = list(Event.select())
    assert sorted(row.dedupe_key for row in rows) == sorted(f"youtube:video:{video}" for video in served)
    for row in rows:
        subject = json.loads(row.subject_json)
        published = datetime.fromisoformat(served[subject["video_id"]]).astimezone(UTC)
        assert subject["published_at"] == row.occurred_at == published.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert row.event_id == f"src:yt:rss:{subject['video_id']}:{int(published.timestamp())}"
    assert db.number("SELECT COUNT(*) FROM dead_letter") == 0
    print(f"{len(captures)} captures, {len(served)} videos, {len(rows)} events")


# ── the walk of 200 ─────────────────────────────────────────────────────────────────────────────────────


def pages_of_200(corpus: Path) -> dict[str | None, dict]:
    """By the token that asks for each."""
    pages = [
        json.loads((corpus / f"youtube_api/playlistItems_200_page{n}_of_4.json").read_bytes()) for n in range(1, 5)
    ]
    tokens = [None, *(page["nextPageToken"] for page in pages[:3])]
    return dict(zip(tokens, pages, strict=True))


def walk(pages: dict[str | None, dict]):
    net = StubNet(lambda asked: reply(pages[asked.query.get("pageToken")]))
    adapter = YouTubePlaylistAdapter(config={"enrich": False}, tools=tools(net))
    return adapter, adapter.read(Position("PLWVAp_NybT0tqKyuJQY8Wswxrwq"))


def test_a_captured_walk_of_four_short_pages_finds_all_198_items(corpus):
    _, reading = walk(pages_of_200(corpus))
    assert (reading.pages, reading.unreadable, reading.items) == (4, 198, ())  # captured without their snippets


def test_a_captured_walk_with_snippets_emits_every_readable_item(corpus):
    pages = pages_of_200(corpus)
    for page in pages.values():
        for item in page["items"]:
            video = item["contentDetails"]["videoId"]
            item["snippet"] = {
                "publishedAt": "2020-01-01T00:00:00Z",
                "channelId": KURZGESAGT,
                "title": video,
                "playlistId": "PL1",
                "resourceId": {"videoId": video},
            }
    readable = [
        item for page in pages.values() for item in page["items"] if item["contentDetails"].get("videoPublishedAt")
    ]
    adapter, reading = walk(pages)
    events = [adapter.normalize(raw) for raw in reading.items]
    assert len(events) == len(readable) == 198 - reading.unreadable
    assert {event.subject["video_id"] for event in events} == {item["contentDetails"]["videoId"] for item in readable}
    print(f"198 items, {len(events)} events, {reading.unreadable} not readable")
