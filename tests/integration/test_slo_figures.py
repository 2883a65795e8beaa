"""What `csi slo` counts, on both engines: events, attempts, uptime; and the figures made of them."""

import pytest

from csi import clock as times
from csi.ingester.event import CreatorSignalEvent
from csi.runtime import ProcessState
from csi.status import slo
from csi.store import attempts, batches, destinations, events, heartbeats, outbox, watches
from csi.store.heartbeats import Attendance
from csi.store.models import Watch
from csi.store.queries import slo_rows
from csi.store.queries.slo_rows import EventTimes, SendCounts
from csi.worker import maintenance

START = 1_771_761_600.0


class Bare:
    """As much of a runtime as a heartbeat needs."""

    def __init__(self, now):
        self.now, self.process, self.clock_trust = now, ProcessState(), None


# --- uptime


def beat_through(clock, *steps):
    """Beats with these pauses between them."""
    for seconds in (0.0, *steps):
        clock.move(seconds)
        maintenance.write_heartbeat(Bare(clock), START)


def test_a_restart_is_no_downtime_and_a_long_silence_is(store, clock):
    beat_through(clock, 5, 5, 29, 5, 300, 5)
    found = heartbeats.attendance("worker", START - 1000, clock())
    assert found == Attendance(START, ((START + 44, START + 344),))
    assert found.down_seconds == 300
    assert slo.Uptime(found, clock()).value == pytest.approx(1 - 300 / 349)


def test_a_downtime_is_cut_to_the_window_and_one_that_lasts_counts_until_now(store, clock):
    beat_through(clock, 5, 1000, 5)
    assert heartbeats.attendance("worker", START + 905, clock()).down_seconds == 100
    clock.move(60)
    found = heartbeats.attendance("worker", START + 905, clock())
    assert [round(end - begin) for begin, end in found.gaps] == [100, 60]


def test_nothing_is_claimed_of_the_time_before_the_first_beat(store, clock):
    assert heartbeats.attendance("worker", 0, clock()) == Attendance(None)
    assert slo.Uptime(Attendance(None), clock()).value is None
    beat_through(clock, 5)
    assert heartbeats.attendance("worker", 0, clock()).since == START


def test_a_heartbeat_from_before_the_upgrade_is_known_from_its_last_beat(store, clock):
    heartbeats.write("worker", clock(), START)
    heartbeats.run("UPDATE heartbeats SET first_beat_at = NULL")
    clock.move(5)
    maintenance.write_heartbeat(Bare(clock), START)
    assert heartbeats.attendance("worker", 0, clock()).since == START


def test_old_downtimes_are_forgotten(store, clock):
    beat_through(clock, 100, heartbeats.KEPT_SECONDS + 200)
    assert heartbeats.fetch("SELECT COUNT(*) FROM downtimes")[0][0] == 1


def test_a_clock_that_goes_back_is_no_downtime(store, clock):
    beat_through(clock, 5, -3600, 5)
    assert heartbeats.attendance("worker", 0, clock()).gaps == ()


# --- rows


def put_event(name, seen_at, *, to=("default",), **changes):
    watches.sync([watches.WantedWatch("youtube_playlist", "PL1", None, None, (), "urgent", 30.0, "all")], START)
    watch = Watch.get()
    event = CreatorSignalEvent(
        event_id=name,
        dedupe_key=name,
        source="youtube_playlist",
        event_type="video_added_to_playlist",
        occurred_at=times.iso(seen_at - 10),
        received_at=times.iso(seen_at),
        subject={"title": name},
        routing={},
    ).model_copy(update=changes)
    pk = events.add(event, watch_id=watch.id, seq=1, tier="urgent", first_seen_at=seen_at)
    outbox.put(pk, list(to), tier="urgent", watch_id=watch.id, seq=pk, due_at=seen_at)
    return pk


def send(pks, at, outcome="delivered", status=200, reason="", answer="", to="default"):
    rows = outbox.claimable(to, "urgent", 100)
    batch = batches.create([row for row in rows if row.event_pk in pks], destination=to, tier="urgent", now=at)
    destinations.change(to, last_success_at=at)
    attempt = attempts.start(batch, to, f"req{at}", 1, "ascii", at)
    attempts.finish(attempt, outcome, at, status=status, reason=reason, answer=answer)
    if outcome == "delivered":
        outbox.remove(batch, pks)
        events.mark_delivered(pks, emitted_at=times.iso(at), now=at)
    else:
        outbox.put_back([batch])


def test_passages_are_those_of_the_window_whatever_became_of_them(store, monkeypatch):
    monkeypatch.setattr(slo_rows, "CHUNK", 2)
    for number in range(7):
        put_event(f"e{number}", START + number)
    send([7], START + 20)
    found = list(slo_rows.event_times(START + 3))
    assert [(one.id, one.state) for one in found] == [(7, "delivered"), (6, "pending"), (5, "pending"), (4, "pending")]
    assert found[0].delivered_at == START + 20
    assert slo_rows.oldest_event() == START


def test_a_destination_that_collects_events_is_left_out_of_the_latency(store):
    both, only, waits, stuck, new = (put_event(name, START, to=("default", "chat")) for name in "abcde")
    events.run("DELETE FROM outbox WHERE event_pk = ? AND destination = 'default'", only)
    plain = put_event("f", START)
    send([both, waits], START + 2)
    send([plain], START + 3)
    send([both, only, stuck], START + 300, to="chat")
    send([new], START + 310, to="chat")
    send([new], START + 320)
    found = {one.id: one for one in slo_rows.event_times(START, ["chat"])}
    ends = {pk: (one.delivered_at, one.is_collected) for pk, one in found.items()}
    assert ends == {
        both: (START + 2, True),
        only: (None, True),
        waits: (START + 2, True),
        stuck: (None, False),
        new: (START + 320, True),
        plain: (START + 3, False),
    }
    tier = slo.judge_tier("urgent", list(found.values()), START + 400)
    assert (tier.events, tier.late, tier.slow) == (6, 1, 2)
    assert tier.to_accepted == slo.LatencyPercentiles(3.0, 400.0, 400.0)
    # Without the knowledge of who collects, five events would be slow.
    blind = slo.judge_tier("urgent", list(slo_rows.event_times(START)), START + 400)
    assert (blind.late, blind.slow) == (2, 5)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ({"outcome": "interrupted", "status": None}, SendCounts(1, 0, 1)),
        ({"outcome": "transient", "status": None, "reason": "timeout"}, SendCounts(1, 0, 1)),
        ({"outcome": "transient", "status": 504, "reason": "http 504"}, SendCounts(1, 0, 1)),
        ({"outcome": "transient", "status": None, "reason": "connect"}, SendCounts(1, 0, 0)),
        ({"outcome": "transient", "status": 503, "reason": "http 503"}, SendCounts(1, 0, 0)),
    ],
    ids=["killed", "timeout", "gateway", "not connected", "refused"],
)
def test_a_repeat_is_possible_where_the_first_answer_was_never_seen(store, first, expected):
    pk = put_event("e", START)
    send([pk], START + 1, **first)
    send([pk], START + 30)
    assert slo_rows.send_counts(START) == expected
    assert slo_rows.send_counts(START + 10) == SendCounts(1, 0, 0)


def test_what_the_receiver_says_it_had_already_is_counted(store):
    pks = [put_event(name, START) for name in "abc"]
    answer = '{"ok":true,"errors":[{"index":0,"error":"duplicate_event"},{"index":1,"error":"duplicate_event"}]}'
    send(pks, START + 1, status=207, answer=answer)
    send([put_event("d", START)], START + 2, status=409)
    assert slo_rows.send_counts(START) == SendCounts(4, 3, 0)
    assert slo.Duplicates(SendCounts(4, 3, 0)).value == 0.75


def test_the_body_of_a_receiver_that_answers_by_status_says_nothing_about_duplicates(store):
    body = '{"rejected": 1, "errors": [{"index": 0, "error": "duplicate_event"}]}'
    send([put_event("a", START, to=["hook"])], START + 1, status=207, answer=body, to="hook")
    send([put_event("b", START, to=["hook"])], START + 2, status=409, to="hook")
    assert slo_rows.send_counts(START, ["hook"]) == SendCounts(2, 1, 0)
    assert slo_rows.send_counts(START) == SendCounts(2, 2, 0)


# --- figures


def passage(tier="urgent", state="delivered", *, waited=10.0, took=2.0, seen=START, first_read=0.0, number=1):
    end = seen + took if state == "delivered" else None
    return EventTimes(number, tier, state, seen - waited, seen, end, first_read)


def test_percentiles_are_values_that_were_measured():
    assert slo.percentiles([]) == slo.LatencyPercentiles()
    assert slo.percentiles([5.0]) == slo.LatencyPercentiles(5.0, 5.0, 5.0)
    assert slo.percentiles([float(n) for n in range(100, 0, -1)]) == slo.LatencyPercentiles(50.0, 95.0, 99.0)
    assert slo.percentiles([-3.0]).p50 == 0.0


def test_both_halves_and_the_whole_are_told_apart():
    found = slo.judge_tier("urgent", [passage(waited=10, took=2), passage("standard")], START + 100)
    assert (found.events, found.to_seen.p95, found.to_accepted.p95, found.total.p95) == (1, 10, 2, 12)
    assert found.is_met is True


def test_the_objective_is_missed_when_one_half_is_too_slow():
    slow = [passage(took=40.0)] * 2
    assert slo.judge_tier("urgent", slow, START + 100).is_met is False
    assert slo.judge_tier("standard", [passage("standard", waited=2000.0)], START + 100).is_met is False
    assert slo.judge_tier("high_volume", [passage("high_volume", took=9e9)], START + 100).is_met is None


def test_a_stuck_line_does_not_look_fast():
    stuck = [passage(), *[passage(state="pending")] * 3]
    found = slo.judge_tier("urgent", stuck, START + 500)
    assert (found.late, found.to_accepted.p50, found.is_met) == (3, 500, False)
    assert slo.judge_tier("urgent", stuck, START + 20).late == 0


def test_items_older_than_their_watch_are_left_out_of_what_begins_at_occurred():
    found = slo.judge_tier("urgent", [passage(waited=86_400 * 900, first_read=START), passage()], START + 9)
    assert (found.old_items, found.to_seen.p99, found.total.p99, found.to_accepted.p99) == (1, 10, 12, 2)


def test_success_judges_only_what_is_settled():
    states = ["delivered"] * 19 + ["dead", "pending", "in_flight"]
    found = slo.judge_success([passage(state=state) for state in states])
    assert (found.seen, found.value, found.is_met) == (22, 0.95, True)
    assert slo.judge_success([passage(state="quarantined")]).is_met is False
    assert slo.judge_success([passage(state="pending")]).is_met is None
