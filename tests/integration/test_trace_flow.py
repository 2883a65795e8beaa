"""Traces of items that really travelled: the words must be those of what happened."""

import re

import pytest

from csi.status.timeline import trace
from csi.store import db
from csi.store.queries import timeline_rows
from tests.fakes.scripted_receiver import ScriptedReceiver, accept
from tests.fakes.youtube import simulated_youtube
from tests.integration import test_store as shelf
from tests.rigs.in_process import InProcessPipeline


@pytest.fixture
def yt(clock):
    with simulated_youtube(playlists=2, now=clock) as site:
        yield site


@pytest.fixture
def make_line(tmp_path, clock, yt):
    def build(
        ua: ScriptedReceiver, *, first_poll: str = "all", tier: str = "urgent", **blocks: object
    ) -> InProcessPipeline:
        source = {"first_poll": first_poll, "poll_interval_seconds": 10, "priority": tier, "quota_limit": 1_000_000}
        playlists = {"api_base_url": yt.api_base_url, "playlists": [{"id": ref} for ref in yt.playlists], **source}
        return InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": playlists}, **blocks)

    with db.connection():
        yield build


def test_two_failures_and_a_receipt(make_line, yt):
    video = yt.add(yt.playlists[0], "Größe")
    with ScriptedReceiver(503, 503) as ua:
        line = make_line(ua)
        line.run()
        (story,) = trace(line.rt, video).timelines
        assert (story.state, story.deliveries[0].state) == ("in_flight", "in_flight")
        assert re.match(r"attempt 1 of 3 failed; batch_\S+ is retried \(until 2026-02-22T12:00:", story.reason)
        line.wait(100)
        (story,) = trace(line.rt, video).timelines
    assert [(step.what, step.details.get("status")) for step in story.steps if step.what == "attempt"] == [
        ("attempt", 503),
        ("attempt", 503),
        ("attempt", 200),
    ]
    assert (story.state, story.title, story.deliveries[0].state) == ("delivered", "Größe", "delivered")
    assert story.steps[-1].what == "delivered"
    assert [step.at for step in story.steps] == sorted(step.at for step in story.steps)


def test_a_batch_that_was_taken_apart_shows_both(make_line, yt):
    videos = [yt.add(yt.playlists[0], f"Number {number}") for number in range(2)]
    bad = videos[1]

    def picky(request):
        ids = [event["subject"]["video_id"] for event in request.envelope["events"]]
        if bad in ids:
            return 400, {"ok": False, "error": "invalid_schema"}, {}
        return accept(request)

    with ScriptedReceiver(then=picky) as ua:
        line = make_line(ua, tier="standard")
        line.run()
        line.wait(120)
        (good_story,), (bad_story,) = trace(line.rt, videos[0]).timelines, trace(line.rt, bad).timelines
    assert "split" in [step.what for step in good_story.steps]
    assert (good_story.state, bad_story.state) == ("delivered", "dead")
    assert "(event)" in bad_story.reason
    assert "invalid_schema" in bad_story.reason


def test_first_poll_and_collecting_and_away(make_line, yt):
    seen = yt.add(yt.playlists[0], "Before us")
    with ScriptedReceiver(then=401) as ua:
        line = make_line(ua, first_poll="mark_seen", tier="standard")
        line.run()
        (story,) = trace(line.rt, seen).timelines
        assert (story.state, "first poll" in story.reason) == ("first_poll", True)
        first = yt.add(yt.playlists[0], "New")
        line.wait(11)
        assert "the batch of lane standard is filling" in trace(line.rt, first).timelines[0].reason
        line.wait(40)
        assert trace(line.rt, first).timelines[0].state == "dead"
        second = yt.add(yt.playlists[1], "Newer")
        line.wait(11)
        assert "the circuit breaker is open since" in trace(line.rt, second).timelines[0].reason


def test_nothing_is_known_of_a_stranger(make_line):
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        assert trace(line.rt, "dQw4w9WgXcQ").timelines == ()


@pytest.mark.usefixtures("store")
def test_keys_are_found_on_both_engines():
    shelf.add_events("a_b:c", "aXb:c")
    assert timeline_rows.find_keys("src:a_b:c") == ["key:a_b:c"]
    assert timeline_rows.find_keys("key:aXb:c") == ["key:aXb:c"]
    assert timeline_rows.find_keys("a_b", ["key:"]) == ["key:a_b:c"]
    assert timeline_rows.find_keys("a_b:c", ["key:"]) == ["key:a_b:c"]
    assert timeline_rows.find_keys("A_B", ["key:"]) == []
    assert timeline_rows.find_keys("a_", ["key:"]) == [], "an id is whole or it is another one's"
    assert [lane.pending for lane in timeline_rows.lanes("default")] == [2]
    (entry, _) = timeline_rows.outbox_of(
        [row.pk for key in ("key:a_b:c", "key:aXb:c") for row in timeline_rows.events_of(key)]
    )
    assert timeline_rows.earlier_item(entry) is None
    assert timeline_rows.all_destinations() == ["default"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("column", "table"), timeline_rows.PLACES)
def test_no_search_by_the_id_of_a_video_reads_a_whole_table(column, table):
    sql = timeline_rows.under_sql(column, table)
    values = ("youtube:video:dQw4w9WgXcQ:", "youtube:video:dQw4w9WgXcQ;", 21)
    if db.is_postgres():
        db.run("SET enable_seqscan = off")  # an empty table is read whole, whatever indexes it has
        plan = " ".join(row[0] for row in db.fetch(f"EXPLAIN {sql}", *values))
        db.run("RESET enable_seqscan")
        assert "Index Cond" in plan, plan
    else:
        plan = " ".join(row[3] for row in db.fetch(f"EXPLAIN QUERY PLAN {sql}", *values))
        assert plan.startswith(f"SEARCH {table} USING"), plan
        assert "SCAN" not in plan
