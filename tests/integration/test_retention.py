"""Retention on both engines: what is old goes, what is on its way or undecided stays, writers get their turn."""

import json

import pytest

from csi.dlq import dead_letters, discard_and_prune, replay, search
from csi.ingester.event import CreatorSignalEvent
from csi.runtime import Runtime
from csi.store import attempts, batches, db, dedupe, events, heartbeats, inbox, outbox, retention, watches
from csi.store.db import database, fetch, run, writing
from csi.store.models import Event
from csi.worker import retention as steps
from tests.conftest import row_counts
from tests.rigs.operator import operator_rig

NOW = 1_771_761_600.0
DAY = 86_400.0
LIMITS = retention.RetentionLimits(events=NOW - 30 * DAY, dead_letters=NOW - 90 * DAY, keys=NOW)


def add(name: str, seen_at: float, state: str = "delivered", *, batch: int | None = None) -> int:
    event = CreatorSignalEvent(
        event_id=f"src:{name}",
        dedupe_key=f"key:{name}",
        source="s",
        event_type="t",
        occurred_at="2026-01-01T00:00:00Z",
        received_at="2026-01-01T00:00:00Z",
        subject={},
        routing={},
    )
    pk = events.add(event, watch_id=None, seq=1, tier="urgent", first_seen_at=seen_at)
    assert pk is not None
    done = seen_at + 1 if state == "delivered" else None
    run("UPDATE events SET state = ?, delivered_at = ? WHERE id = ?", state, done, pk)
    if batch is not None:
        run("INSERT INTO batch_events (batch_id, event_pk) VALUES (?, ?)", batch, pk)
    return pk


def add_batch(at: float, state: str = "delivered") -> int:
    number = batches.create([], destination="default", tier="urgent", now=at)
    settled = None if state in batches.UNSETTLED else at + 1
    run("UPDATE batches SET state = ?, settled_at = ? WHERE id = ?", state, settled, number)
    attempts.finish(attempts.start(number, "default", "r", 1, "ascii", at), "delivered", at + 1, status=200)
    return number


def bury(name: str, at: float, state: str = "open", *, closed_at: float | None = None) -> int:
    dead_letters.add_item(f"src:{name}", "s", {}, cause="event", reason="r", seen_at=at, now=at)
    number = fetch("SELECT MAX(id) FROM dead_letter")[0][0]
    run("UPDATE dead_letter SET state = ?, closed_at = ? WHERE id = ?", state, closed_at, number)
    return int(number)


def sweep(limits: retention.RetentionLimits = LIMITS) -> dict[str, int]:
    gone: dict[str, int] = {}
    for step in retention.STEPS:
        after: object = 0
        for _ in range(1000):
            chunk = step(limits, after)
            gone = {name: gone.get(name, 0) + chunk.removed.get(name, 0) for name in {*gone, *chunk.removed}}
            after = chunk.after
            if after is None:
                break
    return gone


def names() -> set[str]:
    return {row.event_id.removeprefix("src:") for row in Event.select()}


@pytest.mark.usefixtures("store")
class TestRows:
    """Each on SQLite and on PostgreSQL."""

    def test_old_delivered_events_go_with_batch_and_attempts(self):
        old, young = add_batch(NOW - 40 * DAY), add_batch(NOW - DAY)
        add("old", NOW - 40 * DAY, batch=old)
        add("young", NOW - DAY, batch=young)
        expected = {"events": 1, "batch_events": 1, "batches": 1, "delivery_attempts": 1}
        assert retention.survey(LIMITS) == {**expected, "dead_letter": 0, "dedupe_keys": 0, "poll_history": 0}
        assert sweep() == expected
        assert (names(), db.value("SELECT id FROM batches"), db.value("SELECT batch_id FROM delivery_attempts")) == (
            {"young"},
            young,
            young,
        )

    def test_what_is_on_its_way_stays_however_old(self):
        batch = add_batch(NOW - 99 * DAY, "ready")
        for state in ("pending", "in_flight"):
            add(state, NOW - 99 * DAY, state, batch=batch)
        second = add("other destination", NOW - 99 * DAY)
        outbox.put(second, ["b"], tier="urgent", watch_id=None, seq=1, due_at=NOW)
        before = row_counts()
        assert sum(retention.survey(LIMITS).values()) == 0
        assert sweep() == {}
        assert row_counts() == before

    def test_the_events_of_undecided_letters_stay_with_their_attempts(self):
        for state in ("open", "replaying"):
            add(state, NOW - 99 * DAY, "dead", batch=add_batch(NOW - 99 * DAY, "dead"))
            bury(state, NOW - 99 * DAY, state)
        add("decided", NOW - 99 * DAY, "dead", batch=add_batch(NOW - 99 * DAY, "dead"))
        bury("decided", NOW - 99 * DAY, "discarded", closed_at=NOW - DAY)
        sweep()
        assert names() == {"open", "replaying"}
        assert (db.number("SELECT COUNT(*) FROM delivery_attempts"), db.number("SELECT COUNT(*) FROM dead_letter")) == (
            2,
            3,
        )

    def test_a_batch_stays_as_long_as_one_of_its_events(self):
        batch = add_batch(NOW - 40 * DAY)
        add("old", NOW - 40 * DAY, batch=batch)
        add("long held up", NOW - 39 * DAY, "pending", batch=batch)
        assert retention.survey(LIMITS)["batches"] == 0
        sweep()
        assert (names(), db.number("SELECT COUNT(*) FROM batches")) == ({"long held up"}, 1)

    def test_an_event_that_arrived_late_is_kept_from_its_arrival(self):
        pk = add("late", NOW - 40 * DAY)
        run("UPDATE events SET delivered_at = ? WHERE id = ?", NOW - DAY, pk)
        assert sweep() == {}

    def test_letters_go_when_they_were_closed_long_ago(self):
        bury("a", NOW - 200 * DAY, "replayed", closed_at=NOW - 91 * DAY)
        bury("b", NOW - 200 * DAY, "discarded", closed_at=NOW - 89 * DAY)
        bury("c", NOW - 200 * DAY)
        assert sweep() == {"dead_letter": 1}
        assert set(db.column("SELECT state FROM dead_letter")) == {"discarded", "open"}
        assert retention.old_open_dead_letters(LIMITS.dead_letters) == 1

    def test_keys_go_when_their_time_is_over(self):
        dedupe.remember(["old"], "emitted", NOW - 91 * DAY, 90)
        dedupe.remember(["young"], "emitted", NOW - 89 * DAY, 90)
        assert sweep() == {"dedupe_keys": 1}
        assert db.value("SELECT key FROM dedupe_keys") == "young"

    def test_probes_without_a_batch_go_by_their_own_time(self):
        for at in (NOW - 31 * DAY, NOW - 29 * DAY):
            attempts.start(None, "default", "r", 1, "ascii", at)
        assert sweep() == {"delivery_attempts": 1}

    def test_the_inbox_is_never_touched(self):
        watches.sync([watches.WantedWatch("s", "r", None, None, (), "urgent", 30.0, "all")], NOW - 99 * DAY)
        inbox.put(watches.active()[0], [inbox.NewItem("k", "t", "", {})], NOW - 99 * DAY)
        sweep()
        assert db.number("SELECT COUNT(*) FROM inbox") == 1

    def test_many_go_in_chunks_of_bounded_size(self):
        with writing():
            for number in range(2 * retention.CHUNK + 30):
                add(str(number), NOW - 40 * DAY, "pending" if number == 3 else "delivered")
        sizes, after = [], 0
        while after is not None:
            chunk = retention.drop_events(LIMITS, after)
            sizes, after = [*sizes, chunk.removed.get("events", 0)], chunk.after
        assert max(sizes) <= retention.CHUNK
        assert (sum(sizes), names()) == (2 * retention.CHUNK + 29, {"3"})

    def test_a_key_that_was_seen_again_meanwhile_stays(self, monkeypatch):
        dedupe.remember(["old"], "emitted", NOW - 91 * DAY, 90)
        chosen = retention.column

        def and_then_seen(*args, **kwargs):
            found = chosen(*args, **kwargs)
            dedupe.refresh(["old"], NOW, 90)
            return found

        monkeypatch.setattr(retention, "column", and_then_seen)
        assert retention.drop_keys(LIMITS, 0).removed == {"dedupe_keys": 0}

    def test_a_pruned_event_can_be_replayed_from_nothing_but_its_letter(self):
        pk = add("a", NOW - 99 * DAY, "dead")
        payload = json.dumps(events.as_contract(Event.get_by_id(pk), None))
        number = bury("a", NOW - 99 * DAY, "discarded", closed_at=NOW)
        sweep()
        assert names() == set()
        run(
            "UPDATE dead_letter SET state = 'open', event_json = ?, destination = 'default' WHERE id = ?",
            payload,
            number,
        )
        (outcome,) = replay.replay(search.newest(search.DeadLetterFilter(), 1), NOW)
        assert (outcome.is_sent, names(), db.value("SELECT state FROM outbox")) == (True, {"a"}, "pending")

    def test_dlq_prune_on_both_engines(self):
        bury("a", NOW - 91 * DAY)
        bury("b", NOW - 89 * DAY)
        assert discard_and_prune.count_old(NOW - 90 * DAY) == discard_and_prune.OldDeadLetters(1, 1)
        assert discard_and_prune.prune(NOW - 90 * DAY, NOW, key_days=90) == 1
        assert discard_and_prune.prune(NOW - 90 * DAY, NOW, key_days=90) == 0


# --- the run


@pytest.fixture
def operator(tmp_path):
    with operator_rig(tmp_path) as built:
        yield built


def old_rows(rt: Runtime, number: int) -> None:
    with writing():
        for index in range(number):
            add(str(index), rt.now() - 40 * DAY)


def test_a_run_is_bounded_and_the_next_goes_on(operator):
    old_rows(operator.rt, 3 * retention.CHUNK)
    first = steps.prune(operator.rt, max_chunks=2, rest=lambda seconds: None)
    assert (first.complete, first.removed["events"]) == (False, 2 * retention.CHUNK)
    second = steps.prune(operator.rt, max_chunks=2, rest=lambda seconds: None)
    assert (second.complete, second.removed["events"]) == (True, retention.CHUNK)


def test_writers_have_their_turn_between_two_chunks(operator):
    """Another connection that does not wait at all gets the writer's lock during every rest."""
    import sqlite3

    old_rows(operator.rt, 3 * retention.CHUNK)
    other = sqlite3.connect(database.database, timeout=0, isolation_level=None)
    rests: list[float] = []

    def write(seconds: float) -> None:
        rests.append(seconds)
        other.execute("UPDATE watches SET errors = errors + 1")

    steps.prune(operator.rt, rest=write)
    other.close()
    assert len(rests) == 3
    assert all(steps.SHORTEST_REST <= seconds <= steps.LONGEST_REST for seconds in rests)


def test_a_clock_that_jumps_ten_years_does_not_empty_the_database(operator):
    rt, start = operator.rt, operator.now
    steps.prune_hourly(rt)
    add("young", start - DAY)
    dedupe.remember(["young"], "emitted", start, 90)
    rt.now = lambda: start + 3650 * DAY
    for _ in range(5):
        steps.prune_hourly(rt)
    assert (names(), db.number("SELECT COUNT(*) FROM dedupe_keys")) == ({"young"}, 1)
    assert heartbeats.last_beat(steps.NAME) == pytest.approx(start + 5 * DAY, abs=60)
    rt.now = lambda: start + 3600
    steps.prune_hourly(rt)
    assert heartbeats.last_beat(steps.NAME) == start + 3600


def test_the_command_shows_asks_and_removes(operator):
    old_rows(operator.rt, 3)
    bury("undecided", operator.now - 100 * DAY)
    shown = operator.json("prune", "--dry-run")
    assert (shown["tables"]["events"], shown["total"], shown["open_letters_past_their_time"]) == (3, 3, 1)
    refused = operator.call("prune")
    assert (refused.exit_code, Event.select().count()) == (2, 3)
    assert "--yes" in refused.output
    done = operator.call("prune", "--yes")
    assert (done.exit_code, Event.select().count()) == (0, 0)
    assert ["events", "30", "d", "3"] in [line.split() for line in done.stdout.splitlines()]
    assert "1 open dead letter older than 90 days" in done.stderr
    assert operator.json("prune")["total"] == 0


def test_the_days_come_from_the_configuration(tmp_path):
    with operator_rig(tmp_path, retention={"events_days": 2}) as built:
        add("a", built.now - 3 * DAY)
        assert built.json("prune", "--dry-run")["tables"]["events"] == 1
