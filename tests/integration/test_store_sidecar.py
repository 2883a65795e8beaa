"""What the sidecar reads and writes, on both engines: the book of acts, charts, searches, the agenda."""

import json
import os

import pytest

from csi.dlq import dead_letters, search
from csi.dlq.search import DeadLetterFilter
from csi.store import api_units, attempts, audit, batches, db, events, heartbeats, outbox, watches
from csi.store.queries import audit_rows, backlog_rows, charts, event_search, slo_rows, timeline_rows
from csi.store.queries.event_search import EventQuery
from tests.rigs.operator import sample_event

NOW = 1_771_761_600.0
SOURCE = "youtube_playlist"


@pytest.fixture
def watch_id(store: str) -> int:
    watches.sync([watches.WantedWatch(SOURCE, "PLone", "One", None, (), "urgent", 30.0, "all")], NOW)
    found = watches.find_id(SOURCE, "PLone")
    assert found is not None
    return found


def seen(name: str, at: float, watch_id: int, tier: str = "urgent") -> int:
    pk = events.add(sample_event(name), watch_id=watch_id, seq=1, tier=tier, first_seen_at=at)
    assert pk is not None
    outbox.put(pk, ["default"], tier=tier, watch_id=watch_id, seq=pk, due_at=at)
    return pk


def sent(pk: int, at: float, status: int = 200) -> None:
    (row,) = db.fetch("SELECT id, event_pk, watch_id FROM outbox WHERE event_pk = ?", pk)
    batch = batches.create([outbox.Entry(*row)], destination="default", tier="urgent", now=at - 1)
    number = attempts.start(batch, "default", f"req{pk}", 1, "ascii", at - 0.5)
    attempts.finish(number, "delivered", at, status=status)
    outbox.remove(batch, [pk])
    events.mark_delivered([pk], emitted_at="2026-02-22T12:00:00Z", now=at)


def test_an_act_is_written_before_and_finished_after(store: str) -> None:
    number = audit.begin(NOW, via="dashboard", role="admin", client="127.0.0.1", action="POST /x")
    assert audit_rows.page(5)[0].status is None
    audit.finish(number, NOW + 1, status=303, detail="Ü")
    (row,) = audit_rows.page(5)
    assert (row.status, row.detail, row.finished_at) == (303, "Ü", NOW + 1)
    assert audit_rows.page(5, before=number) == []


def test_a_worker_says_how_much_waits_in_its_queue(store: str) -> None:
    heartbeats.write("worker", NOW, NOW - 5, queued=7)
    assert heartbeats.latest("worker") == heartbeats.LastHeartbeat(NOW, NOW - 5, 7, pid=os.getpid())
    heartbeats.write("worker", NOW + 5, NOW - 5)
    assert heartbeats.latest("worker") == heartbeats.LastHeartbeat(NOW + 5, NOW - 5, None, pid=os.getpid())


def test_flow_is_counted_by_the_interval(watch_id: int) -> None:
    for number, at in enumerate((NOW - 125, NOW - 65, NOW - 64, NOW - 5)):
        pk = seen(f"v{number}", at, watch_id)
        if number:
            sent(pk, at + 3)
    dead_letters.add_item("k", SOURCE, {}, cause="malformed", reason="x", seen_at=NOW, now=NOW - 10)
    found = charts.flow_chart(NOW, 240.0, 60)
    assert (found.seen, found.arrived, found.died) == ((1, 2, 1, 0), (0, 2, 1, 0), (0, 0, 1, 0))
    assert sum(charts.flow_chart(NOW + 86_400, 3600.0, 60).seen) == 0


def test_letters_are_counted_by_cause(watch_id: int) -> None:
    dead_letters.add_item("k", SOURCE, {}, cause="crash", reason="x", seen_at=NOW, now=NOW)
    assert charts.open_dead_letters() == {"crash": 1}


def test_recent_letters_of_a_receiver_are_counted_by_destination(watch_id: int) -> None:
    for at, cause in ((NOW - 4000, "transient"), (NOW, "transient"), (NOW, "destination"), (NOW, "event")):
        dead_letters.add_item("k", SOURCE, {}, cause=cause, reason="x", seen_at=NOW, now=at)  # type: ignore[arg-type]
    found = charts.recent_dead_letters(NOW - 3600, dead_letters.REDRIVABLE)
    assert found == charts.RecentDeadLetters(3, 0, {"": 2})
    assert charts.recent_dead_letters(NOW + 1, dead_letters.REDRIVABLE) == charts.RecentDeadLetters()


def test_events_are_found_by_words_and_state(store: str, watch_id: int) -> None:
    first, second = seen("alpha", NOW - 10, watch_id), seen("beta", NOW, watch_id, "standard")
    sent(first, NOW)

    def found(before: int | None = None, **wanted: object) -> list[int]:
        return [row.id for row in event_search.newest(EventQuery(**wanted), 10, before)]  # type: ignore[arg-type]

    assert found() == [second, first]
    assert found(text="ALPHA") == [first]
    assert found(text="über") == ([] if store == "sqlite" else [second, first])  # SQLite lowers ASCII only
    assert found(text="Über b") == [second]
    assert found(text="%") == found(text="a_pha") == []
    assert found(text=sample_event("beta").dedupe_key) == [second]
    assert found(state="delivered") == [first]
    assert found(tier="standard", source=SOURCE, watch_id=watch_id, since=NOW - 1) == [second]
    assert found(before=second) == [first]
    assert [row.id for row in event_search.following(EventQuery(), 10, first)] == [second]
    row = event_search.find(sample_event("beta").event_id)
    assert row is not None
    assert row.id == second
    row = event_search.find(str(first))
    assert row is not None
    assert (row.watch_name, row.watch_ref) == ("One", "PLone")
    assert [event.id for event in events.by_ids([second, 999, first])] == [second, first]


def test_letters_are_chosen_by_cause_and_by_their_very_error(store: str) -> None:
    for reason, cause in (("http 50%", "malformed"), ("http 503", "malformed"), ("http 503", "crash")):
        dead_letters.add_item("k", SOURCE, {}, cause=cause, reason=reason, seen_at=NOW, now=NOW)  # type: ignore[arg-type]
    assert search.ids(DeadLetterFilter(error="http 503")) == [2, 3]
    assert search.ids(DeadLetterFilter(error="http 50%")) == [1]
    assert search.ids(DeadLetterFilter(error="http 503", cause="crash")) == [3]
    assert [letter.id for letter in search.page(DeadLetterFilter(), 2)] == [3, 2]
    assert [letter.id for letter in search.page(DeadLetterFilter(), 2, after=2)] == [1]


def test_the_agenda_knows_what_comes_and_what_travels(watch_id: int) -> None:
    pk = seen("alpha", NOW, watch_id)
    (row,) = db.fetch("SELECT id, event_pk, watch_id FROM outbox WHERE event_pk = ?", pk)
    batches.create([outbox.Entry(*row)], destination="default", tier="urgent", now=NOW)
    assert [(one.ref, one.next_poll_at) for one in backlog_rows.planned_polls(5)] == [("PLone", NOW)]
    assert backlog_rows.due_counts(NOW - 30, 60.0) == (0, 1)
    assert backlog_rows.unsettled_counts() == {"ready": 1, "sending": 0}
    assert [(one.size, one.destination, one.state) for one in backlog_rows.unsettled_batches(5)] == [
        (1, "default", "ready")
    ]
    assert backlog_rows.inbox() == backlog_rows.Inbox(0, 0, None)


def test_events_by_several_sources_types_and_tags(store: str, watch_id: int) -> None:
    first, second, third = (seen(name, NOW, watch_id) for name in ("alpha", "beta", "gamma"))
    for pk, routing in ((first, {"tags": ["ai", "a,b"]}), (second, {"tags": ["aix"]}), (third, {"tags": "ai"})):
        db.run("UPDATE events SET routing_json = ?, event_type = ? WHERE id = ?", json.dumps(routing), f"type{pk}", pk)

    def found(**wanted: tuple[str, ...]) -> list[int]:
        query = EventQuery(**wanted)  # type: ignore[arg-type]
        assert event_search.ids(query) == sorted(row.id for row in event_search.newest(query, 10))
        return event_search.ids(query)

    assert found(tags=("a,b",)) == [first]
    assert found(tags=("aix", "ai"), sources=(SOURCE, "reddit")) == [first, second]
    assert found(event_types=(f"type{third}",)) == [third]
    assert found(sources=("reddit",)) == found(tags=("AI",)) == []


def test_an_event_that_is_sent_again_is_counted_apart(store: str, watch_id: int) -> None:
    pk = seen("alpha", NOW, watch_id)
    sent(pk, NOW + 5)
    assert [outbox.send_again(pk, "default", NOW + 50) for _ in range(2)] == [True, False]
    (entry,) = outbox.claimable("default", "resend", 10)
    batch = batches.create([entry], destination="default", tier="resend", now=NOW + 50)
    attempts.finish(attempts.start(batch, "default", "again", 1, "ascii", NOW + 51), "delivered", NOW + 52, status=409)
    db.run("UPDATE batches SET state = 'delivered', settled_at = ?", NOW + 52)
    outbox.remove(batch, [pk])
    db.run("INSERT INTO destinations (destination) VALUES ('default')")
    assert slo_rows.send_counts(NOW) == slo_rows.SendCounts(sent=1, reported=0, possible=0, resent=1)
    assert timeline_rows.sent_to([pk]) == {pk: {"default"}}
    assert events.by_ids([pk])[0].delivered_at == NOW + 5


def test_a_correction_of_the_api_budget_stands_at_its_hour(store: str) -> None:
    start = api_units.day_starts(NOW)
    first, third, fourth = (int((start + hours * 3600) // 3600) for hours in (0, 2, 3))
    api_units.book(300, 10_000, start + 10)
    api_units.book(200, 10_000, start + 2 * 3600 + 10)
    api_units.exhaust(10_000, start + 2 * 3600 + 20)
    assert api_units.used_by_hour() == {first: 300, third: 9_700}
    assert api_units.book(1, 10_000, start + 3 * 3600 + 30)
    assert api_units.used_by_hour() == {first: 300, third: 9_700, fourth: -9_499}
    assert sum(api_units.used_by_hour().values()) == api_units.used(start + 3 * 3600 + 30) == 501
