"""The channel adapter: the feed, the uploads list and both; kinds, gaps, and entries that are not what they say."""

from typing import Any

import pytest

from csi.adapters.base import Position, RawEvent
from csi.adapters.youtube_channel_rss import ChannelWatch, YouTubeChannelRSSAdapter
from csi.errors import MalformedItem, NetError, SourceError
from tests.fakes.stub_net import Asked, Ledger, StubNet, refusal, reply, tools
from tests.fakes.youtube_feed import entry, feed

NOW = 1_771_761_600.0  # 2026-02-22T12:00:00Z
REF = "UCaaaaaaaaaaaaaaaaaaaaaa"
UPLOADS = "UUaaaaaaaaaaaaaaaaaaaaaa"
DAY = 86_400.0


def one(video: str = "v1", **parts: str) -> str:
    return entry(**{"video": video, "channel": REF, **parts})


def stamp(age: float) -> str:
    from csi import clock

    return clock.iso(NOW - age)


def item(video: str, age: float = 0.0) -> dict[str, Any]:
    return {
        "id": f"item-{video}",
        "snippet": {
            "publishedAt": stamp(age),
            "channelId": REF,
            "title": f"Title of {video}",
            "playlistId": UPLOADS,
            "position": 0,
            "videoOwnerChannelId": REF,
            "resourceId": {"videoId": video},
        },
        "contentDetails": {"videoId": video, "videoPublishedAt": stamp(age)},
        "status": {"privacyStatus": "public"},
    }


class YouTube:
    """A feed, an uploads list and its shorts, each as a test sets it."""

    def __init__(self) -> None:
        self.feed: Any = reply(feed(one()))
        self.uploads: list[dict[str, Any]] = []
        self.shorts: set[str] = set()
        self.videos: dict[str, dict[str, Any]] = {}
        self.channels = [{"id": REF}]
        self.api: Any = None
        self.ledger = Ledger()
        self.net = StubNet(self._answer)
        self.time = NOW

    def adapter(self, *, key: str | None = "the-key", spare: bool = True, **config: Any) -> YouTubeChannelRSSAdapter:
        ready = tools(self.net, key=key, charge=self.ledger.charge, spare=lambda units: spare, clock=lambda: self.time)
        return YouTubeChannelRSSAdapter(config=config, tools=ready)

    def _answer(self, asked: Asked):
        if asked.path == "/feeds/videos.xml":
            if isinstance(self.feed, Exception):
                raise self.feed
            return self.feed(asked) if callable(self.feed) else self.feed
        if self.api is not None:
            return self.api
        match asked.path.rpartition("/")[2]:
            case "channels":
                return reply({"items": self.channels})
            case "videos":
                return reply({"items": [self.videos[v] for v in asked.query["id"].split(",") if v in self.videos]})
        return self._list(asked)

    def _list(self, asked: Asked):
        ref, start = asked.query["playlistId"], int(asked.query.get("pageToken", "0"))
        rows = [row for row in self.uploads if ref == UPLOADS or row["contentDetails"]["videoId"] in self.shorts]
        if not rows:
            return refusal("playlistNotFound", 404)
        more = {"nextPageToken": str(start + 50)} if start + 50 < len(rows) else {}
        etag = f"tag-{len(rows)}"
        if asked.headers.get("If-None-Match") == etag:
            return reply(b"", 304)
        return reply({"etag": etag, "items": rows[start : start + 50], **more})

    def count(self, path: str) -> int:
        return self.net.count(path)


@pytest.fixture
def yt() -> YouTube:
    return YouTube()


def read(adapter: YouTubeChannelRSSAdapter, via: str = "feed", **position: Any):
    return adapter.read(Position(REF, via=via, **position))


def videos(adapter: YouTubeChannelRSSAdapter, reading: Any) -> list[str]:
    return [adapter.normalize(raw).subject["video_id"] for raw in reading.items]


def failure(adapter: YouTubeChannelRSSAdapter, **position: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(adapter, **position)
    return caught.value


# ── the feed ────────────────────────────────────────────────────────────────────────────────────────────


def test_an_entry_becomes_an_event(yt):
    adapter = yt.adapter(key=None)
    event = adapter.normalize(read(adapter).items[0])
    assert (event.event_id, event.dedupe_key) == ("src:yt:rss:v1:1771761300", "youtube:video:v1")
    assert event.event_type == "channel_new_upload"
    assert event.subject == {
        "platform": "youtube",
        "video_id": "v1",
        "channel_id": REF,
        "channel_title": "A channel",
        "url": "https://www.youtube.com/watch?v=v1",
        "title": "A title",
        "published_at": "2026-02-22T11:55:00Z",
        "kind": "video",
        "description": "About it",
        "thumbnail_url": "https://i1.ytimg.com/vi/v1/hqdefault.jpg",
    }


def test_fifteen_entries_are_a_full_window_and_fourteen_are_not(yt):
    for count, full in ((14, False), (15, True)):
        yt.feed = reply(feed(*(one(f"v{n}") for n in range(count))))
        assert read(yt.adapter()).window_full is full


def test_an_updated_entry_is_the_same_entry(yt):
    adapter = yt.adapter()
    before = read(adapter).items[0]
    yt.feed = reply(feed(one(updated="2026-03-01T00:00:00+00:00", description="Edited")))
    after = read(adapter).items[0]
    assert adapter.item_key(before) == adapter.item_key(after)
    assert adapter.normalize(before).event_id == adapter.normalize(after).event_id


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"video": ""}, "no usable video id"),
        ({"video": "../../etc/passwd"}, "no usable video id"),
        ({"published": "soon"}, "published is not a time"),
        ({"published": "0001-01-01T00:00:00Z"}, "before 1970"),
        ({"published": "99999-01-01T00:00:00Z"}, "published is not a time"),
        ({"title": " "}, "no title"),
        ({"channel": "UCbbbbbbbbbbbbbbbbbbbbbb"}, "another channel"),
    ],
)
def test_one_bad_entry_among_fifteen_leaves_the_others_alone(yt, bad, words):
    yt.feed = reply(feed(*(one(f"v{n}") for n in range(14)), one(**{"video": "bad", **bad})))
    adapter = yt.adapter()
    items = read(adapter).items
    assert videos(adapter, read(adapter).__class__(items=items[:14])) == [f"v{n}" for n in range(14)]
    with pytest.raises(MalformedItem, match=words):
        adapter.normalize(items[14])


def test_a_bad_entry_has_one_key_of_its_own_so_that_it_is_a_dead_letter_once(yt):
    adapter = yt.adapter()
    yt.feed = reply(feed(one(published="soon")))
    first = adapter.item_key(read(adapter).items[0])
    yt.feed = reply(feed(one(published="soon", updated="2026-05-05T00:00:00Z", description="Edited")))
    assert adapter.item_key(read(adapter).items[0]) == first == f"youtube:malformed:v1:{REF}"
    yt.feed = reply(feed(one()))
    assert adapter.item_key(read(adapter).items[0]) == "youtube:video:v1"


def test_an_entry_that_claims_another_channel_leaves_the_key_to_its_owner(yt):
    yt.feed = reply(feed(one(channel="UCbbbbbbbbbbbbbbbbbbbbbb")))
    adapter = yt.adapter()
    assert adapter.item_key(read(adapter).items[0]) == f"youtube:malformed:v1:{REF}"


@pytest.mark.parametrize("claimed", ["", REF, REF.removeprefix("UC")])
def test_an_entry_without_a_channel_or_without_its_uc_is_the_watched_channels(yt, claimed):
    yt.feed = reply(feed(one(channel=claimed)))
    adapter = yt.adapter()
    assert adapter.normalize(read(adapter).items[0]).subject["channel_id"] == REF


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ({}, "video"),
        ({"link": '<link rel="alternate" href="https://www.youtube.com/shorts/v1"/>'}, "short"),
        ({"statistics": '<media:statistics views="0"/>', "published": stamp(7200)}, "upcoming"),
        ({"statistics": '<media:statistics views="0"/>', "published": stamp(60)}, "video"),
        (
            {
                "statistics": '<media:statistics views="0"/>',
                "published": stamp(7200),
                "rating": '<media:starRating count="0" average="0.00" min="1" max="5"/>',
            },
            "video",
        ),
        (
            {
                "statistics": '<media:statistics views="0"/>',
                "published": stamp(7200),
                "link": '<link rel="alternate" href="https://www.youtube.com/shorts/v1"/>',
            },
            "short",
        ),
    ],
)
def test_kinds_as_far_as_the_feed_tells(yt, parts, kind):
    yt.feed = reply(feed(one(**parts)))
    adapter = yt.adapter()
    assert adapter.normalize(read(adapter).items[0]).subject["kind"] == kind


def test_enrichment_tells_what_the_feed_cannot(yt):
    row = {"id": "v1", "snippet": {"liveBroadcastContent": "live"}, "contentDetails": {"duration": "P0D"}}
    yt.videos = {"v1": row}
    adapter = yt.adapter(enrich=True)
    assert adapter.normalize(read(adapter).items[0]).subject["kind"] == "live"
    plain = yt.adapter()
    assert plain.normalize(read(plain).items[0]).subject["kind"] == "video"
    row["snippet"]["liveBroadcastContent"] = "none"
    row["contentDetails"]["duration"] = "PT42S"
    short = yt.adapter(enrich=True)
    yt.feed = reply(feed(one(link='<link rel="alternate" href="https://www.youtube.com/shorts/v1"/>')))
    subject = short.normalize(read(short).items[0]).subject
    assert (subject["kind"], subject["duration_seconds"]) == ("short", 42)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, "missing"),
        (410, "missing"),
        (403, "denied"),
        (429, "throttled"),
        (503, "throttled"),
        (500, "transient"),
        (502, "transient"),
        (400, "transient"),
        (302, "transient"),
    ],
)
def test_a_status_is_said_with_its_kind(yt, status, kind):
    yt.feed = reply(b"<html>", status, retry_after="77")
    error = failure(yt.adapter())
    assert (str(error), error.kind, error.retry_after) == (f"the feed answered {status}", kind, 77.0)


def test_a_feed_that_cannot_be_reached(yt):
    yt.feed = NetError("www.youtube.com: no answer", kind="timeout")
    assert failure(yt.adapter()).kind == "transient"


def test_what_is_not_an_id_never_reaches_a_url(yt):
    with pytest.raises(SourceError, match="not the id"):
        yt.adapter().read(Position("../../etc"))
    assert yt.net.asked == []


# ── conditional requests ────────────────────────────────────────────────────────────────────────────────


def conditional(asked: Asked):
    if asked.headers.get("If-None-Match") == 'W/"1"' and asked.headers.get("If-Modified-Since"):
        return reply(b"", 304, cache_control="max-age=60")
    return reply(feed(one()), etag='W/"1"', last_modified="Sun, 22 Feb 2026 11:00:00 GMT", cache_control="max-age=900")


def test_validators_are_sent_back_and_a_304_changes_nothing(yt):
    yt.feed = conditional
    adapter = yt.adapter()
    first = read(adapter)
    second = read(adapter, etag=first.etag, last_modified=first.last_modified, last_success_at=NOW)
    assert second.unchanged
    assert second.items == ()
    assert (second.etag, second.last_modified) == (first.etag, first.last_modified)
    assert (first.fresh_until, second.fresh_until) == (NOW + 900, NOW + 60)


def test_the_same_bytes_again_are_not_read_again(yt):
    yt.feed = reply(feed(one()))
    adapter = yt.adapter()
    first = read(adapter)
    again = read(adapter, etag=first.etag, last_success_at=yt.time)
    assert again.unchanged
    assert again.items == ()
    assert again.etag == first.etag
    assert "If-None-Match" not in yt.net.asked[-1].headers  # the digest is ours, not the server's


def test_the_same_bytes_are_read_again_after_six_hours(yt):
    """Only a whole read shows which items are still there: their keys must not run out."""
    yt.feed = reply(feed(one()))
    adapter = yt.adapter()
    first = read(adapter)
    yt.time += 6 * 3600
    assert len(read(adapter, etag=first.etag, last_success_at=yt.time).items) == 1


def test_one_byte_more_is_read(yt):
    adapter = yt.adapter()
    yt.feed = reply(feed(one()))
    first = read(adapter)
    yt.feed = reply(feed(one()) + b"\n")
    assert len(read(adapter, etag=first.etag, last_success_at=yt.time).items) == 1


def test_a_feed_with_an_announced_stream_is_read_each_time(yt):
    """It may begin while the feed's bytes stay the same."""
    yt.feed = reply(feed(one()))
    yt.videos = {"v1": {"id": "v1", "snippet": {"liveBroadcastContent": "upcoming"}, "contentDetails": {}}}
    adapter = yt.adapter(enrich=True)
    first = read(adapter)
    assert adapter.normalize(first.items[0]).subject["kind"] == "upcoming"
    assert read(adapter, etag=first.etag, last_success_at=yt.time).items


def test_a_304_to_an_unconditional_request_is_an_error(yt):
    yt.feed = reply(b"", 304)
    assert "304" in str(failure(yt.adapter()))
    assert "304" in str(failure(yt.adapter(), etag='"from-an-older-version"'))


def test_a_huge_or_odd_etag_is_not_kept_and_never_stops_the_watch(yt):
    for odd in ("x" * 5_000, '"日本"', ""):
        yt.feed = reply(feed(one()), etag=odd)
        kept = read(yt.adapter()).etag
        assert kept.startswith("body:")
        assert len(kept) < 60


def test_an_etag_of_the_api_is_not_sent_to_the_feed(yt):
    read(yt.adapter(), etag=f"api:{int(NOW)}:abc")
    assert yt.net.asked[0].headers == {}


# ── through the API ─────────────────────────────────────────────────────────────────────────────────────


def test_via_api_reads_the_uploads_list_for_a_unit(yt):
    yt.uploads = [item(f"v{n}", n) for n in range(60)]
    adapter = yt.adapter()
    reading = read(adapter, "api", emits=0)
    assert videos(adapter, reading) == [f"v{n}" for n in range(50)]
    assert (reading.window_full, yt.ledger.used, yt.count("videos.xml")) == (True, 1, 0)
    again = read(adapter, "api", etag=reading.etag, last_success_at=NOW)
    assert again.unchanged


def test_feed_and_api_give_the_same_event(yt):
    yt.uploads = [item("v1", 300)]
    adapter = yt.adapter()
    by_feed = adapter.normalize(read(adapter).items[0])
    by_api = adapter.normalize(read(adapter, "api").items[0])
    assert (by_feed.event_id, by_feed.dedupe_key) == (by_api.event_id, by_api.dedupe_key)
    assert (by_feed.occurred_at, by_feed.source) == (by_api.occurred_at, by_api.source)
    assert by_api.event_type == "channel_new_upload_api"


def test_a_watch_that_moves_from_the_feed_to_the_api_does_not_take_old_uploads_for_new(yt):
    yt.uploads = [item("new", 60), *(item(f"v{n}", 10 * DAY + n) for n in range(40))]
    adapter = yt.adapter()
    assert videos(adapter, read(adapter, "api", last_success_at=NOW - 300)) == ["new"]
    first = read(adapter, "api")
    yt.uploads.append(item("older", 400 * DAY))
    after = read(adapter, "api", etag=first.etag, last_success_at=NOW - 300)
    assert len(after.items) == 42


def test_a_channel_without_videos_is_empty_and_one_without_a_channel_is_missing(yt):
    assert read(yt.adapter(), "api").items == ()
    yt.channels = []
    assert failure(yt.adapter(), via="api").kind == "missing"


def test_shorts_among_new_uploads_are_recognised(yt):
    yt.uploads, yt.shorts = [item("v1"), item("v2")], {"v2"}
    adapter = yt.adapter()
    kinds = [adapter.normalize(raw).subject["kind"] for raw in read(adapter, "api").items]
    assert (kinds, yt.ledger.used) == (["video", "short"], 2)
    read(adapter, "api", known=set, last_success_at=NOW)
    assert yt.ledger.used == 3  # nothing new, nothing extra


def test_only_a_channel_can_be_read_through_the_api(yt):
    with pytest.raises(SourceError, match="channel id"):
        yt.adapter().read(Position("UULFxyz", via="api"))


def test_via_of_a_watch_wins_over_the_sources():
    adapter = YouTubeChannelRSSAdapter(config={"via": "both"})
    assert adapter.via_of(ChannelWatch(channel_id=REF)) == "both"
    assert adapter.via_of(ChannelWatch(channel_id="UCb", via="api")) == "api"


def test_the_host_of_a_watch_is_where_it_is_read():
    adapter = YouTubeChannelRSSAdapter(config={"api_base_url": "http://localhost:1/youtube/v3"})
    assert (adapter.host(REF), adapter.host(REF, "api")) == ("www.youtube.com", "localhost:1")


# ── both ────────────────────────────────────────────────────────────────────────────────────────────────


def test_both_reads_the_api_once_an_hour_beside_the_feed(yt):
    yt.uploads = [item("v1", 300), item("hidden", 600), item("old", 30 * DAY)]
    adapter, last, found = yt.adapter(), NOW, []
    for _ in range(36):
        yt.time += 300
        found += videos(adapter, read(adapter, "both", last_success_at=last))
        last = yt.time
    assert yt.ledger.used == 3 + 3  # three hours; each time the shorts are asked for, since nothing here is ever known
    assert set(found) == {"v1", "hidden"}
    assert found.count("v1") == 36


def test_both_gives_what_the_feed_gives_when_the_api_fails(yt):
    yt.api = refusal("quotaExceeded")
    adapter = yt.adapter()
    assert videos(adapter, read(adapter, "both")) == ["v1"]


def test_both_replaces_a_feed_that_fails_for_a_quarter_of_an_hour(yt):
    yt.feed, yt.uploads = reply(b"", 404), [item("v1", 300)]
    adapter = yt.adapter()
    assert failure(adapter, via="both", last_success_at=NOW - 600).kind == "missing"
    assert yt.ledger.used == 0
    reading = read(adapter, "both", last_success_at=NOW - 900)
    assert videos(adapter, reading) == ["v1"]
    assert reading.host == adapter.host(REF, "api")


def test_both_says_the_feeds_error_when_neither_works(yt):
    yt.feed, yt.api = reply(b"", 404), refusal("backendError", 500)
    assert "the feed answered 404" in str(failure(yt.adapter(), via="both"))
    assert "the feed answered 404" in str(failure(yt.adapter(key=None), via="both"))
    assert "the feed answered 404" in str(failure(yt.adapter(spare=False), via="both"))


# ── gaps ────────────────────────────────────────────────────────────────────────────────────────────────


def gap(yt: YouTube, known: set[str], since: float | None = NOW - 3600, **options: Any):
    adapter = yt.adapter(**options)
    keys = {f"youtube:video:{video}" for video in known}
    position = Position(REF, known=lambda asked: keys & set(asked), last_success_at=since)
    return adapter, adapter.fill_gap(position, since)


def test_a_gap_is_filled_to_the_first_upload_that_was_known(yt):
    yt.uploads = [item(f"new{n}", n) for n in range(70)] + [item(f"old{n}", 7200 + n) for n in range(200)]
    adapter, reading = gap(yt, {f"old{n}" for n in range(15)})
    assert videos(adapter, reading) == [f"new{n}" for n in range(70)]
    assert (reading.pages, reading.window_full) == (2, False)
    assert {raw.event_type for raw in reading.items} == {"channel_new_upload_api"}
    assert {raw.source for raw in reading.items} == {"youtube_channel_rss"}


def test_a_known_upload_at_the_top_does_not_end_the_search(yt):
    yt.uploads = [item("premiere", 0), item("new1", 10), item("new2", 20), item("old", 7200)]
    adapter, reading = gap(yt, {"premiere", "old"})
    assert videos(adapter, reading) == ["new1", "new2"]


def test_the_back_catalogue_is_not_news_when_everything_known_is_gone(yt):
    yt.uploads = [item("new", 10)] + [item(f"old{n}", (n + 2) * DAY) for n in range(300)]
    adapter, reading = gap(yt, set())
    assert videos(adapter, reading) == ["new"]


def test_a_gap_of_more_than_five_hundred_is_filled_in_part_and_says_so(yt):
    yt.uploads = [item(f"new{n}", n) for n in range(700)]
    _, reading = gap(yt, set())
    assert len(reading.items) == 500
    assert (reading.window_full, reading.pages) == (True, 10)


def test_without_a_date_to_go_by_the_first_known_upload_ends_it(yt):
    yt.uploads = [item("new", 0), item("known", 10), item("other", 20)]
    adapter, reading = gap(yt, {"known"}, since=None)
    assert videos(adapter, reading) == ["new"]


def test_a_gap_cannot_be_filled_without_a_key_or_a_channel_and_waits_for_the_budget(yt):
    yt.uploads = [item("new")]
    assert gap(yt, set(), key=None)[1] is None
    yt.ledger.left = 0
    with pytest.raises(SourceError):
        gap(yt, set())
    assert yt.adapter().fill_gap(Position("UULFx"), NOW) is None


@pytest.mark.parametrize(
    ("reason", "status", "passes"),
    [("quotaExceeded", 403, True), ("keyInvalid", 400, False), ("backendError", 500, True)],
)
def test_a_failure_that_passes_is_raised_and_one_that_stays_is_not(yt, reason, status, passes):
    yt.api = refusal(reason, status)
    if passes:
        with pytest.raises(SourceError):
            gap(yt, set())
    else:
        assert gap(yt, set())[1] is None


def test_confirm_asks_the_api(yt):
    assert yt.adapter().confirm(REF) == "exists"
    assert yt.adapter(key=None).confirm(REF) == "unknown"
    yt.channels = []
    assert yt.adapter().confirm(REF) == "missing"


def test_an_item_of_neither_kind_is_malformed():
    adapter = YouTubeChannelRSSAdapter(config={})
    with pytest.raises(MalformedItem, match="neither"):
        adapter.normalize(RawEvent("youtube_channel_rss", "channel_new_upload", {"channel_id": REF}, ""))
