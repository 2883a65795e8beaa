"""From a source to a stored event: first poll, failures, private items, malformed items, a toy source."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from csi.adapters import registry
from csi.adapters.base import RawEvent, SourceAdapter
from csi.dlq import search
from csi.ingester.event import CreatorSignalEvent
from csi.pipeline import poll
from csi.pipeline.wake import Wake
from csi.runtime import ProcessState, Share
from csi.store import api_units, db, events, inbox
from csi.store.models import Event, Watch
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline


@pytest.fixture
def yt(clock):
    with simulated_youtube(channels=2, playlists=2, now=clock) as site:
        yield site


@pytest.fixture
def ua():
    with ScriptedReceiver() as receiver:
        yield receiver


@pytest.fixture
def line(tmp_path, clock, yt, ua):
    """A function that builds the line, so that a test can change the settings first."""
    open_connections = ExitStack()

    def build(**settings):
        playlists = settings.pop("playlists", [{"id": ref} for ref in yt.playlists])
        channels = settings.pop("channels", [{"channel_id": ref} for ref in yt.channels])
        source = {"first_poll": "all", "poll_interval_seconds": 10} | settings
        built = InProcessPipeline(
            tmp_path,
            clock,
            ua.url,
            sources={
                "youtube_playlist": {"api_base_url": yt.api_base_url, "playlists": playlists, **source},
                "youtube_channel_rss": {"feed_url_template": yt.feed_url_template, "watchlist": channels, **source},
            },
            route_profiles={"explain": {"pipeline": "explainer", "priority": "urgent", "tags": ["ai"]}},
        )
        open_connections.close()
        open_connections.enter_context(db.connection())
        return built

    with open_connections:
        yield build


def keys() -> set[str]:
    return {row.dedupe_key for row in Event.select()}


def test_items_of_one_second_leave_in_the_order_of_their_source(line, yt, clock):
    """A feed shows its newest entry on top, a list its newest item at the end."""
    uploads = [yt.upload(yt.channels[0], f"Upload {number}") for number in range(3)]
    additions = [yt.add(yt.playlists[0], f"Addition {number}") for number in range(3)]
    line().run()
    stored = [(row.source, json.loads(row.subject_json)["video_id"]) for row in Event.select().order_by(Event.seq)]
    assert [video for source, video in stored if source == "youtube_channel_rss"] == uploads
    assert [video for source, video in stored if source == "youtube_playlist"] == additions


def test_an_upload_and_a_playlist_addition_become_events_with_every_field(line, yt, clock):
    video = yt.add(yt.playlists[0], "In the list")
    upload = yt.upload(yt.channels[0], "On the channel")
    built = line(playlists=[{"id": yt.playlists[0], "route_profile": "explain", "tags": ["mine"]}])
    built.run()
    rows = {row.source: events.as_contract(row, None) for row in Event.select()}
    added, uploaded = rows["youtube_playlist"], rows["youtube_channel_rss"]
    epoch = int(clock())
    assert added["event_id"] == f"src:yt:playlist:{video}:{yt.playlists[0]}:{epoch}"
    assert added["dedupe_key"] == f"youtube:video:{video}:{yt.playlists[0]}"
    assert added["routing"] == {"pipeline": "explainer", "priority": "urgent", "tags": ["ai", "mine"]}
    assert added["subject"]["channel_id"] == yt.library
    assert added["subject"]["playlist_id"] == yt.playlists[0]
    assert added["metadata"]["source_ref"] == yt.playlists[0]
    assert uploaded["event_id"] == f"src:yt:rss:{upload}:{epoch}"
    assert uploaded["dedupe_key"] == f"youtube:video:{upload}"
    assert uploaded["subject"]["channel_id"] == yt.channels[0]
    required = {"platform", "video_id", "channel_id", "url", "title", "published_at"}
    assert required <= added["subject"].keys() & uploaded["subject"].keys()
    assert uploaded["subject"]["url"] == f"https://www.youtube.com/watch?v={upload}"


def test_nothing_is_emitted_twice_over_many_polls_and_edits(line, yt):
    built = line()
    video = yt.upload(yt.channels[0], "One")
    for _ in range(5):
        built.wait(10)
        yt.world.edit(video, at=built.clock(), title="One, edited")
    assert keys() == {f"youtube:video:{video}"}


@pytest.mark.parametrize(("policy", "emitted"), [("mark_seen", 0), ({"last": 2}, 2), ("all", 5)])
def test_the_first_read_decides_what_is_old(line, yt, clock, policy, emitted):
    videos = [yt.upload(yt.channels[0], f"Old {number}", at=clock() - 1000 + number) for number in range(5)]
    built = line(first_poll=policy, channels=[{"channel_id": yt.channels[0]}], playlists=[])
    built.run()
    assert keys() == {f"youtube:video:{video}" for video in videos[5 - emitted :]}
    assert db.number("SELECT COUNT(*) FROM dedupe_keys") == 5
    new = yt.upload(yt.channels[0], "New")
    built.wait(10)
    assert f"youtube:video:{new}" in keys()


def test_a_watchs_own_first_poll_wins(line, yt):
    for channel in yt.channels:
        yt.upload(channel, "Old")
    watchlist = [{"channel_id": yt.channels[0], "first_poll": "all"}, {"channel_id": yt.channels[1]}]
    built = line(first_poll="mark_seen", channels=watchlist)
    built.run()
    assert [row.watch_id for row in Event.select()] == [Watch.get(ref=yt.channels[0]).id]


def test_a_failed_first_read_decides_nothing(line, yt):
    yt.upload(yt.channels[0], "Old")
    yt.set_faults("feed:500")
    built = line(first_poll="mark_seen", channels=[{"channel_id": yt.channels[0]}], playlists=[])
    built.run()
    assert (Watch.get().errors, Watch.get().first_read_at) == (1, None)
    yt.set_faults("")
    built.wait(10)
    assert keys() == set()
    assert Watch.get().errors == 0


def test_an_empty_first_read_is_a_baseline(line, yt):
    built = line(first_poll="mark_seen", channels=[{"channel_id": yt.channels[0]}], playlists=[])
    built.run()
    video = yt.upload(yt.channels[0], "The first ever")
    built.wait(10)
    assert keys() == {f"youtube:video:{video}"}


def test_a_private_item_is_emitted_when_it_becomes_readable(line, yt):
    video = yt.add(yt.playlists[0], "Secret", privacy="private")
    built = line()
    built.run()
    assert keys() == set()
    yt.world.set_privacy(video, "public", at=built.clock())
    built.wait(10)
    assert keys() == {f"youtube:video:{video}:{yt.playlists[0]}"}


def test_a_list_of_many_pages_is_read_to_its_end(line, yt, clock):
    videos = [yt.add(yt.playlists[0], f"Number {number}", at=clock() - 500 + number) for number in range(120)]
    built = line(channels=[], playlists=[{"id": yt.playlists[0]}])
    built.run_without_delivery()
    assert keys() == {f"youtube:video:{video}:{yt.playlists[0]}" for video in videos}
    assert (
        api_units.used(clock()) == 3 + 3 + 1 + 1
    )  # three pages, 120 new videos enriched 50 at a time, the title, the icon


def test_a_walk_that_fails_in_the_middle_changes_nothing(line, yt):
    for number in range(60):
        yt.add(yt.playlists[0], f"Number {number}")
    yt.set_faults("playlistItems:500+1*1")
    built = line(channels=[], playlists=[{"id": yt.playlists[0]}])
    built.run()
    assert (db.number("SELECT COUNT(*) FROM inbox"), Event.select().count(), Watch.get().first_read_at) == (0, 0, None)
    built.wait(10)
    assert len(keys()) == 60


def test_items_of_a_watch_are_stored_in_order_of_time(line, yt, clock):
    for number in (3, 1, 2):
        video = yt.upload(yt.library, f"Number {number}")
        yt.world.add_to_playlist(yt.playlists[0], video, at=clock() - 100 + number)
    built = line(channels=[], playlists=[{"id": yt.playlists[0]}])
    built.run_without_delivery()
    titles = [json.loads(row.subject_json)["title"] for row in Event.select().order_by(Event.seq)]
    assert titles == ["Number 1", "Number 2", "Number 3"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("feed:404", "the feed answered 404"),
        ("feed:html", "it is an HTML page"),
        ("feed:empty", "it is empty"),
        ("feed:truncated", "not well-formed XML"),
        ("feed:cut", "the feed could not be read"),
        ("feed:bomb", "declares a document type"),
        ("feed:attributes", "too many attributes"),
        ("feed:deep", "nest too deep"),
        ("feed:gzip", "the feed could not be read"),
        ("feed:reset", "the feed could not be read"),
    ],
)
def test_a_body_that_is_not_a_feed_is_an_error_on_its_watch_only(line, yt, fault, words):
    bad, good = yt.channels
    yt.upload(bad, "Behind the fault")
    video = yt.upload(good, "Fine")
    target, _, action = fault.partition(":")
    yt.set_faults(f"{target}/{bad}:{action}")
    built = line(playlists=[])
    built.run()
    assert words in Watch.get(ref=bad).last_error
    assert keys() == {f"youtube:video:{video}"}
    yt.set_faults("")
    built.wait(60, step=5)
    assert len(keys()) == 2


def test_a_failing_watch_is_tried_again_within_a_minute_for_ever(line, yt):
    yt.set_faults("feed:500")
    built = line(channels=[{"channel_id": yt.channels[0]}], playlists=[], poll_interval_seconds=300)
    built.run()
    for _ in range(12):
        built.wait(60, step=5)
        assert Watch.get().next_poll_at - built.clock() <= 60
    assert Watch.get().state == "active"


def test_a_spent_quota_stops_the_calls_until_pacific_midnight(line, yt, clock):
    built = line(channels=[], playlists=[{"id": yt.playlists[0]}])
    yt.set_faults("playlistItems:quotaExceeded*1")
    built.run()
    assert "quota" in Watch.get().last_error
    yt.wait_for(lambda: yt.requests.count("/youtube/v3/playlistItems") == 1)
    built.wait(300, step=30)
    assert yt.requests.count("/youtube/v3/playlistItems") == 1
    clock.time = api_units.day_ends(clock()) + 1
    built.run()
    assert Watch.get().last_error is None


def test_a_key_that_is_not_valid_is_said_in_words(line, yt):
    yt.set_faults("api:API_KEY_INVALID")
    line(channels=[], playlists=[{"id": yt.playlists[0]}]).run()
    assert "API key is not valid" in Watch.get().last_error


def test_a_watch_from_the_config_that_went_away_is_not_polled(line, yt, tmp_path):
    line(playlists=[]).run()
    kept, gone = yt.channels
    line(channels=[{"channel_id": kept}], playlists=[]).wait(30)
    polled = {watch.ref: watch.last_poll_at for watch in Watch.select()}
    assert polled[kept] > polled[gone]
    assert yt.requests.count("/feeds/videos.xml") > 2, "the other one is"


# --- a source of one's own


class Toy(SourceAdapter):
    """What FR-1.2 asks for, and nothing else."""

    name = "toy"
    found: ClassVar[list[RawEvent]] = []

    async def fetch_events(self) -> list[RawEvent]:
        return list(self.found)

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        number = raw.payload["number"]
        return CreatorSignalEvent(
            event_id=f"src:toy:{number}",
            dedupe_key=f"toy:{number}",
            source=raw.source,
            event_type=raw.event_type,
            occurred_at=raw.occurred_at,
            received_at=raw.occurred_at,
            subject={"platform": "toy", **raw.payload},
            routing={},
        )

    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        return event.dedupe_key


def toy_item(number: object, **payload: object) -> RawEvent:
    return RawEvent("toy", "toy_appeared", {"number": number, **payload}, "2026-02-22T12:00:00Z")


@pytest.fixture
def toy(monkeypatch, tmp_path, clock, ua):
    """One module and one line in the registry: that is all a new source takes."""
    monkeypatch.setitem(registry.ADAPTERS, "toy", f"{__name__}:Toy")
    Toy.found = []
    built = InProcessPipeline(tmp_path, clock, ua.url, sources={"toy": {"first_poll": "all", "priority": "urgent"}})
    with db.connection():
        yield built


def test_a_source_with_only_the_prds_three_methods_travels_the_whole_line(toy, ua):
    Toy.found = [toy_item(1), toy_item(2), toy_item(1)]
    toy.run()
    assert ua.event_ids == ["src:toy:1", "src:toy:2"]


def test_a_malformed_item_is_a_dead_letter_once_and_the_others_flow(toy, ua):
    broken = RawEvent("toy", "toy_appeared", {"no": "number"}, "2026-02-22T12:00:00Z")
    Toy.found = [toy_item(1), broken, toy_item(2)]
    toy.run()
    toy.wait(700, step=100)
    assert ua.event_ids == ["src:toy:1", "src:toy:2"]
    (letter,) = search.newest(search.DeadLetterFilter(states=()), 2)
    assert (db.number("SELECT COUNT(*) FROM dead_letter"), letter.cause, letter.state) == (1, "malformed", "open")
    assert json.loads(letter.event_json)["raw"]["payload"] == {"no": "number"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**30])
def test_numbers_that_are_not_json_are_malformed(toy, value):
    Toy.found = [toy_item(1, score=value)]
    toy.run()
    assert db.value("SELECT cause FROM dead_letter") == "malformed"


@pytest.mark.parametrize("text", ["a\x00b", "lone \ud800 surrogate", "</script>", "\u2028", "x" * 100_000, "العربية"])
def test_hostile_text_arrives_cleaned(toy, ua, text):
    Toy.found = [toy_item(1, title=text)]
    toy.run()
    title = ua.requests[0].envelope["events"][0]["subject"]["title"]
    assert title == "".join(c for c in text if c not in "\x00\ud800")[:5000]


def test_an_item_whose_handling_ends_the_process_is_set_aside_after_three(toy, ua, clock):
    Toy.found = [toy_item(1), toy_item(2)]
    (ingest_one, _) = toy._take(toy.step(Wake("poll", Watch.get().id)))
    for _ in range(3):
        assert inbox.claim(int(ingest_one.key), clock())  # claimed, and then the process was gone
        clock.move(inbox.LEASE_SECONDS + 1)
    toy.wait(30)
    assert ua.event_ids == ["src:toy:2"]
    assert db.value("SELECT state FROM inbox") == "quarantined"
    assert db.value("SELECT cause FROM dead_letter") == "crash"


def test_an_odd_payload_is_one_dead_letter_and_the_others_flow(toy, ua, monkeypatch):
    def key_of(self, raw):
        return [][raw.payload["number"]] if raw.payload["number"] == 3 else f"toy:{raw.payload['number']}"

    monkeypatch.setattr(Toy, "item_key", key_of, raising=False)
    when = datetime(2026, 2, 22, tzinfo=UTC)
    Toy.found = [toy_item(1), toy_item(2, made=when), toy_item(3)]
    toy.run()
    assert "src:toy:1" in ua.event_ids
    assert "src:toy:2" in ua.event_ids


def test_a_poll_that_ends_calls_the_one_that_waits(line, yt, clock, monkeypatch):
    """With one place for reading, the second is refused while the first is read, and follows it at once."""
    built = line(playlists=[])
    built.rt.share = Share(threads=2)
    first, second = Watch.select().order_by(Watch.id)
    position_of, refused = poll._position, []

    def slowly(rt, watch):
        if watch.id == first.id:
            refused.append(built.step(Wake("poll", second.id)))
        return position_of(rt, watch)

    monkeypatch.setattr(poll, "_position", slowly)
    reads = poll.poll(built.rt, first.id)
    next(reads)
    assert refused == [[]]
    assert Watch.get_by_id(second.id).last_poll_at is None
    next(reads)
    assert Watch.get_by_id(second.id).last_poll_at == clock()


def crowded(built, monkeypatch):
    """One place for reading; while the first watch is read, the second asks for it in vain."""
    built.rt.share = Share(threads=2)
    first, second = (row.id for row in Watch.select().order_by(Watch.id))
    position_of = poll._position

    def slowly(rt, watch):
        if watch.id == first:
            built.step(Wake("poll", second))
        return position_of(rt, watch)

    monkeypatch.setattr(poll, "_position", slowly)
    return first, second


def test_who_stood_in_line_is_read_in_the_place_that_became_free(line, monkeypatch):
    built = line(playlists=[])
    first, second = crowded(built, monkeypatch)
    wakes = [wake for some in poll.poll(built.rt, first) for wake in some]
    assert [wake.key for wake in wakes if wake.step == "poll"] == [first, second]
    assert all(wake.at == Watch.get_by_id(wake.key).next_poll_at for wake in wakes if wake.step == "poll")
    assert all(Watch.get_by_id(watch_id).last_success_at for watch_id in (first, second))


def test_a_worker_that_ends_does_not_begin_with_the_next_in_line(line, monkeypatch):
    built = line(playlists=[])
    first, second = crowded(built, monkeypatch)
    built.rt.stopping = lambda: True
    wakes = [wake for some in poll.poll(built.rt, first) for wake in some]
    assert Wake("poll", second) in wakes
    assert Watch.get_by_id(second).last_poll_at is None


def test_a_watch_that_waits_for_its_turn_is_found_again_when_its_caller_dies(line, yt, clock, monkeypatch):
    built = line(playlists=[])
    built.rt.share = Share(threads=2)
    first, second = Watch.select().order_by(Watch.id)
    monkeypatch.setattr(poll, "_position", lambda rt, watch: built.step(Wake("poll", second.id)) or 1 / 0)
    with monkeypatch.context() as patch:
        patch.setattr(built.rt.process.poll_slots, "call_next", lambda slots: None)
        built.step(Wake("poll", first.id))
    monkeypatch.undo()
    built.rt.process = ProcessState()  # a new process
    built.wait(16)
    assert Watch.get_by_id(second.id).last_success_at is not None
