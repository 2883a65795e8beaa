"""The playlist adapter over a list in hand: every page, every kind of item, lists that move while they are read."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from csi.adapters.base import Position
from csi.adapters.youtube_playlist import YouTubePlaylistAdapter
from csi.errors import SourceError
from tests.fakes.stub_net import Asked, Ledger, StubNet, refusal, reply, tools

NOW = 1_771_761_600.0


def item(video: str, *, added: str = "2026-02-22T10:00:00Z", **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": "youtube#playlistItem",
        "id": f"item-{video}-{added}",
        "snippet": {
            "publishedAt": added,
            "channelId": "UCowner",
            "title": f"Title of {video}",
            "description": "About it",
            "thumbnails": {"default": {"url": f"https://i.ytimg.com/vi/{video}/default.jpg"}},
            "videoOwnerChannelId": "UCmaker",
            "playlistId": "PL1",
            "position": 0,
            "resourceId": {"kind": "youtube#video", "videoId": video},
        },
        "contentDetails": {"videoId": video, "videoPublishedAt": "2026-02-20T10:00:00Z"},
        "status": {"privacyStatus": "public"},
    }
    return row | changes


def private(video: str) -> dict[str, Any]:
    snippet = item(video)["snippet"] | {"title": "Private video", "thumbnails": {}}
    snippet.pop("videoOwnerChannelId")
    return item(video, snippet=snippet, contentDetails={"videoId": video}, status={"privacyStatus": "private"})


class List:
    """A playlist that is served in pages of `size`; `after` is called when a page was served."""

    def __init__(self, items: list[dict[str, Any]], size: int = 2) -> None:
        self.items, self.size, self.pages = items, size, 0
        self.after: Callable[[int], None] = lambda page: None
        self.fails_at: int | None = None
        self.videos: dict[str, dict[str, Any]] = {}

    def __call__(self, asked: Asked):
        if asked.path.endswith("/videos"):
            rows = [self.videos[name] for name in asked.query["id"].split(",") if name in self.videos]
            return reply({"items": rows})
        self.pages += 1
        if self.pages == self.fails_at:
            return refusal("backendError", 500)
        start = int(asked.query.get("pageToken", "0"))
        shown = self.items[start : start + self.size]
        more = {"nextPageToken": str(start + self.size)} if start + self.size < len(self.items) else {}
        etag = f"tag{hash(json.dumps([shown, more, len(self.items)]))}"
        if asked.headers.get("If-None-Match") == etag:
            return reply(b"", 304)
        page = reply({"etag": etag, "items": shown, "pageInfo": {"totalResults": len(self.items)}, **more})
        self.after(self.pages)
        return page


class Read:
    """One adapter over one list, and what it cost."""

    def __init__(
        self, served: Any, *, left: int = 10_000, spare: bool = True, clock=lambda: NOW, **config: Any
    ) -> None:
        self.net, self.ledger, self.progress = StubNet(served), Ledger(left), 0
        ready = tools(
            self.net,
            charge=self.ledger.charge,
            exhaust=self.ledger.exhaust,
            spare=lambda units: spare,
            clock=clock,
        )
        self.adapter = YouTubePlaylistAdapter(config={"enrich": False, **config}, tools=ready)

    def _tick(self) -> None:
        self.progress += 1

    def __call__(self, **position: Any):
        return self.adapter.read(Position("PL1", progress=self._tick, **position))

    def keys(self, **position: Any) -> list[str]:
        return [self.adapter.item_key(raw) for raw in self(**position).items]


def key(video: str) -> str:
    return f"youtube:video:{video}:PL1"


# ── pages ───────────────────────────────────────────────────────────────────────────────────────────────


def test_all_pages_are_read_and_each_is_booked():
    read = Read(List([item(f"v{n}") for n in range(7)]))
    reading = read()
    assert len(reading.items) == 7
    assert (reading.pages, read.ledger.used, read.progress) == (4, 4, 3)


def test_a_short_page_and_an_empty_page_are_not_the_last():
    pages = {
        None: {"items": [], "nextPageToken": "a"},
        "a": {"items": [item("v1")], "nextPageToken": "b"},
        "b": {"items": [item("v2")]},
    }
    read = Read(lambda asked: reply(pages[asked.query.get("pageToken")]))
    assert read.keys() == [key("v1"), key("v2")]


def test_a_walk_that_fails_in_the_middle_gives_nothing():
    served = List([item(f"v{n}") for n in range(7)])
    served.fails_at = 3
    with pytest.raises(SourceError, match="internal error"):
        Read(served)()


def test_a_budget_that_ends_in_the_middle_gives_nothing():
    read = Read(List([item(f"v{n}") for n in range(7)]), left=2)
    with pytest.raises(SourceError) as caught:
        read()
    assert caught.value.kind == "budget"


def test_a_list_without_an_end_is_refused():
    with pytest.raises(SourceError, match="no end") as caught:
        Read(lambda asked: reply({"items": [item("v1")], "nextPageToken": "same"}))()
    assert caught.value.retry_after == 86_400
    counter = iter(range(10_000))
    with pytest.raises(SourceError, match="no end"):
        Read(lambda asked: reply({"items": [], "nextPageToken": str(next(counter))}))()


def test_a_5000_item_list_is_read_to_its_end():
    read = Read(List([item(f"v{n}") for n in range(5_000)], size=50))
    reading = read()
    assert (len(reading.items), reading.pages) == (5_000, 100)


def test_what_is_not_an_id_never_reaches_a_url():
    read = Read(List([]))
    with pytest.raises(SourceError, match="not the id"):
        read.adapter.read(Position("PL1&key=x"))
    assert read.net.asked == []


# ── a list that moves ───────────────────────────────────────────────────────────────────────────────────


def test_an_item_that_slips_to_a_page_already_read_is_found_by_the_next_walk():
    served = List([item(f"v{n}") for n in range(6)])

    def remove_first(page: int) -> None:
        if page == 1:
            served.items.pop(0)

    served.after = remove_first
    read = Read(served)
    first = read.keys(last_success_at=NOW)
    assert key("v2") not in first
    served.after = lambda page: None
    assert key("v2") in read.keys(last_success_at=NOW)


def test_an_item_that_slips_to_the_next_page_is_one_item():
    served = List([item(f"v{n}") for n in range(4)])

    def insert_first(page: int) -> None:
        if page == 1:
            served.items.insert(0, item("new"))

    served.after = insert_first
    found = Read(served).keys(last_success_at=NOW)
    assert found.count(key("v1")) == 2  # the walk's dedupe makes one of them
    assert set(found) == {key(f"v{n}") for n in range(4)}


def test_a_first_read_of_a_list_in_motion_is_repeated_so_that_nothing_old_looks_new():
    served = List([item(f"v{n}") for n in range(6)])

    def remove_first(page: int) -> None:
        if page == 1:
            served.items.pop(0)

    served.after = remove_first
    read = Read(served)
    assert set(read.keys()) == {key(f"v{n}") for n in range(1, 6)}
    assert read.ledger.used == 6


# ── items ───────────────────────────────────────────────────────────────────────────────────────────────


def test_private_and_deleted_items_are_not_read_and_come_when_they_can_be():
    deleted = item("v2", contentDetails={"videoId": "v2"})
    served = List([item("v1"), deleted, private("v3")], size=50)
    read = Read(served)
    reading = read()
    assert ([read.adapter.item_key(raw) for raw in reading.items], reading.unreadable) == ([key("v1")], 2)
    served.items[2] = item("v3")
    assert read.keys() == [key("v1"), key("v3")]


def test_a_public_video_may_be_called_private_video():
    named = item("v1")
    named["snippet"]["title"] = "Private video"
    assert Read(List([named])).keys() == [key("v1")]


@pytest.mark.parametrize(
    "broken",
    [
        {"id": "x"},
        {"id": "x", "contentDetails": {"videoId": "v", "videoPublishedAt": "2026-01-01T00:00:00Z"}},
        {"id": "x", "snippet": 7, "contentDetails": []},
    ],
)
def test_an_item_without_its_parts_is_not_readable_yet(broken):
    reading = Read(List([broken, item("v1")]))()
    assert (len(reading.items), reading.unreadable) == (1, 1)


def test_a_broken_item_keeps_the_key_free_for_the_day_when_it_is_whole():
    broken = item("v1", added="yesterday")
    served = List([broken])
    read = Read(served)
    assert read.keys() == ["youtube:malformed:v1:PL1"]
    served.items[0] = item("v1")
    assert read.keys() == [key("v1")]


def test_the_same_video_twice_and_removed_and_added_again_have_one_key():
    twice = [item("v1", added="2026-02-22T10:00:00Z"), item("v1", added="2026-02-22T11:00:00Z")]
    assert Read(List(twice)).keys() == [key("v1"), key("v1")]


def test_the_event_has_the_videos_owner_and_the_moment_it_was_added():
    read = Read(List([item("v1")]))
    event = read.adapter.normalize(read().items[0])
    assert event.event_id == "src:yt:playlist:v1:PL1:1771754400"
    assert event.occurred_at == "2026-02-22T10:00:00Z"
    assert event.subject == {
        "platform": "youtube",
        "video_id": "v1",
        "channel_id": "UCmaker",
        "url": "https://www.youtube.com/watch?v=v1",
        "title": "Title of v1",
        "published_at": "2026-02-20T10:00:00Z",
        "kind": "video",
        "description": "About it",
        "thumbnail_url": "https://i.ytimg.com/vi/v1/default.jpg",
        "playlist_id": "PL1",
        "playlist_position": 0,
        "playlist_owner_channel_id": "UCowner",
    }


# ── etags ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_of_one_page_is_asked_for_with_its_etag():
    served = List([item("v1")])
    read = Read(served)
    first = read()
    second = read(etag=first.etag, last_success_at=NOW)
    assert second.unchanged
    assert second.etag == first.etag
    assert read.ledger.used == 2  # a 304 costs a unit all the same
    served.items.append(item("v2"))
    assert not read(etag=second.etag, last_success_at=NOW).unchanged


def test_a_list_of_several_pages_has_no_etag_because_its_end_can_change_alone():
    assert Read(List([item(f"v{n}") for n in range(3)]))().etag is None


def test_a_whole_list_is_read_every_six_hours_so_that_its_keys_do_not_age():
    time = [NOW]
    read = Read(List([item("v1")]), clock=lambda: time[0])
    tag = read().etag
    time[0] += 21_599
    assert read(etag=tag, last_success_at=NOW).unchanged
    time[0] += 2
    assert not read(etag=tag, last_success_at=NOW).unchanged


def test_an_etag_from_before_is_not_sent():
    read = Read(List([item("v1")]))
    assert not read(etag='"old"').unchanged
    assert "If-None-Match" not in read.net.asked[0].headers


# ── enrichment ──────────────────────────────────────────────────────────────────────────────────────────


def video(name: str, duration: str = "PT2M", live: str = "none") -> dict[str, Any]:
    return {"id": name, "snippet": {"liveBroadcastContent": live}, "contentDetails": {"duration": duration}}


def enriched(count: int, **options: Any) -> tuple[List, Read]:
    served = List([item(f"v{n}", added=f"2026-02-22T10:{n % 60:02}:00Z") for n in range(count)], size=50)
    served.videos = {f"v{n}": video(f"v{n}") for n in range(count)}
    return served, Read(served, enrich=True, **options)


def subjects(read: Read, **position: Any) -> list[dict[str, Any]]:
    return [read.adapter.normalize(raw).subject for raw in read(**position).items]


def test_new_items_carry_their_length_for_a_unit_per_fifty():
    _, read = enriched(60)
    assert {subject["duration_seconds"] for subject in subjects(read)} == {120}
    assert read.ledger.used == 2 + 2


def test_a_normal_poll_costs_nothing_extra():
    _, read = enriched(10)
    read(known=set, last_success_at=NOW)
    assert read.ledger.used == 1


def test_only_the_new_ones_are_asked_for():
    _, read = enriched(10)
    found = subjects(read, known=lambda keys: set(keys) - {key("v7")}, last_success_at=NOW)
    assert read.net.asked[-1].query["id"] == "v7"
    assert [subject["video_id"] for subject in found if "duration_seconds" in subject] == ["v7"]


def test_a_first_poll_that_only_marks_is_not_enriched_and_one_of_the_newest_is():
    _, read = enriched(10)
    assert not any("duration_seconds" in subject for subject in subjects(read, emits=0))
    assert read.ledger.used == 1
    found = subjects(read, emits=3)
    assert [s["video_id"] for s in found if "duration_seconds" in s] == ["v7", "v8", "v9"]


def test_a_dump_of_thousands_does_not_use_up_the_day():
    _, read = enriched(1_000)
    read()
    assert read.ledger.used == 20 + 4


def test_enrichment_waits_for_a_budget_with_room():
    _, read = enriched(3, spare=False)
    assert not any("duration_seconds" in subject for subject in subjects(read))
    assert read.ledger.used == 1


@pytest.mark.parametrize("answer", [refusal("quotaExceeded"), reply(b"<html>", 500), reply({"items": 7})])
def test_a_failing_enrichment_never_fails_the_poll(answer):
    served, read = enriched(3)
    read.net.answer = lambda asked: answer if asked.path.endswith("/videos") else served(asked)
    assert len(subjects(read)) == 3
    assert not any("duration_seconds" in subject for subject in subjects(read))


def test_live_and_upcoming_are_said_and_a_video_that_is_gone_is_a_video():
    served, read = enriched(3)
    served.videos = {"v0": video("v0", "P0D", "live"), "v1": video("v1", "P0D", "upcoming")}
    assert [subject["kind"] for subject in subjects(read)] == ["live", "upcoming", "video"]


def test_a_list_with_a_stream_that_waits_is_read_in_full():
    served, read = enriched(2)
    served.videos["v0"] = video("v0", "P0D", "upcoming")
    assert read().etag is None


def test_what_stays_unknown_is_asked_for_again_only_after_a_while():
    time = [NOW]
    served, read = enriched(1, clock=lambda: time[0])
    served.videos["v0"] = video("v0", "P0D", "upcoming")
    read(last_success_at=NOW)
    read(last_success_at=NOW)
    assert read.net.count("/videos") == 1
    time[0] += 901
    served.videos["v0"] = video("v0", "PT1H", "none")
    assert subjects(read, last_success_at=NOW)[0]["duration_seconds"] == 3600
    assert read.net.count("/videos") == 2


# ── sizes, and whether it is gone ───────────────────────────────────────────────────────────────────


def test_items_are_counted_for_a_unit_without_reading_the_list():
    def answer(asked: Asked):
        names = asked.query["id"].split(",")
        return reply({"items": [{"id": name, "contentDetails": {"itemCount": 7}} for name in names if name != "PL3"]})

    read = Read(answer)
    assert (read.adapter.count_items("PL0", "api"), read.ledger.used) == (7, 1)
    assert read.adapter.count_items("PL3", "api") is None


def test_ids_are_asked_for_fifty_per_unit():
    def answer(asked: Asked):
        names = asked.query["id"].split(",")
        assert len(names) <= 50
        assert asked.query["maxResults"] == "50"
        return reply({"items": [{"id": name} for name in names]})

    read = Read(answer)
    found = list(read.adapter.api.rows("playlists", "contentDetails", [f"PL{n}" for n in range(120)]))
    assert (len(found), read.ledger.used) == (120, 3)


def test_a_playlist_that_the_api_does_not_know_is_missing():
    assert Read(lambda asked: reply({"items": []})).adapter.confirm("PL1") == "missing"
    assert Read(lambda asked: reply({"items": [{"id": "PL1"}]})).adapter.confirm("PL1") == "exists"
    assert Read(lambda asked: refusal("forbidden")).adapter.confirm("PL1") == "unknown"


def test_its_host_is_the_apis():
    read = Read(List([]), api_base_url="http://127.0.0.1:8080/youtube/v3/")
    assert read.adapter.host("PL1") == "127.0.0.1:8080"
    read()
    assert read.net.asked[0].path == "/youtube/v3/playlistItems"
