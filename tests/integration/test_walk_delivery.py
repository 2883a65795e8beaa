"""From a stored event to a receipt: 0/20/60, the dead letters, the breaker, redrive, splitting, forms of JSON."""

import base64
import json
import time

import pytest
from standardwebhooks import Webhook

from csi.admin import replay_by_command
from csi.dlq import dead_letters
from csi.emitter import http
from csi.ingester import signature
from csi.pipeline import deliver, flush, redrive, rescue, schedule, settle
from csi.runtime import Share
from csi.store import batches, counters, db, destinations, events, heartbeats, inbox, leases
from csi.store.models import Event
from csi.web import metrics
from csi.worker import maintenance
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver, accept
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline

DOWN = 503


@pytest.fixture
def yt(clock):
    with simulated_youtube(channels=2, playlists=4, now=clock) as site:
        yield site


@pytest.fixture
def make_line(tmp_path, clock, yt):
    def build(ua: ScriptedReceiver, *, tier: str = "urgent", **delivery: object) -> InProcessPipeline:
        source = {"first_poll": "all", "poll_interval_seconds": 10, "priority": tier, "quota_limit": 1_000_000}
        playlists = {"api_base_url": yt.api_base_url, "playlists": [{"id": ref} for ref in yt.playlists], **source}
        return InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": playlists}, delivery=delivery)

    with db.connection():
        yield build


def states() -> dict[str, int]:
    return events.counts()


def test_a_healthy_receiver_gets_a_signed_request_with_all_headers(make_line, yt, clock):
    yt.add(yt.playlists[0], "Über 🚀")
    with ScriptedReceiver() as ua:
        make_line(ua).run()
    (request,) = ua.requests
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.headers["content-type"] == "application/json"
    verdict = signature.verify(
        [SECRET],
        signature=request.headers["x-csi-signature"],
        timestamp=request.headers["x-csi-timestamp"],
        request_id=request.headers["x-csi-request-id"],
        body=request.body,
        now=clock(),
    )
    assert verdict == signature.ValidSignature("ascii")
    assert request.envelope["csi_instance_id"] == "csi-vps-01"
    assert request.envelope["batch_id"].startswith("batch_20260222_120000_")
    assert request.envelope["events"][0]["emitted_at"] == "2026-02-22T12:00:00Z"
    row = Event.get()
    assert (row.state, row.delivered, row.emitted_at) == ("delivered", True, "2026-02-22T12:00:00Z")


def test_a_delivery_counts_both_shares_of_its_latency(make_line, yt, clock):
    yt.add(yt.playlists[0], "An item")
    clock.move(40)
    with ScriptedReceiver() as ua:
        make_line(ua).run()
    seen = counters.all_of("seen_seconds")
    assert sum(seen.values()) == 1
    ((tier, bucket),) = seen
    assert (tier, float(bucket) >= 30) == ("urgent", True)
    assert sum(counters.all_of("accept_seconds").values()) == 1


def test_the_heartbeat_tells_how_many_wake_ups_wait(make_line, clock):
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        rescue.rescue(line.rt, 17)
        maintenance.write_heartbeat(line.rt, clock())
    beat = heartbeats.latest("worker")
    assert beat.queued == 17


def test_a_dead_letter_goes_out_again_by_itself_when_the_receiver_is_back(make_line, yt):
    yt.add(yt.playlists[0])
    with ScriptedReceiver(then=DOWN) as ua:
        line = make_line(ua)
        line.run()
        line.wait(120)
        assert states() == {"dead": 1}
        ua.then = accept
        line.wait(40)
    assert states() == {"delivered": 1}
    assert (
        db.value("SELECT state FROM dead_letter"),
        db.value("SELECT result FROM dead_letter"),
        dead_letters.open_count(),
    ) == ("replayed", "delivered", 0)


def test_a_receiver_that_comes_back_and_refuses_is_away_for_that_reason(make_line, yt):
    yt.add(yt.playlists[0])
    with ScriptedReceiver(then=DOWN) as ua:
        line = make_line(ua)
        line.run()
        line.wait(120)
        assert (destinations.get().circuit, destinations.get().reason) == ("open", "http 503")
        ua.then = 401
        line.wait(40)
        assert (destinations.get().circuit, destinations.get().reason) == ("open", "http 401")


def test_without_auto_redrive_it_stays_dead(tmp_path, clock, yt):
    yt.add(yt.playlists[0])
    with ScriptedReceiver(then=DOWN) as ua, db.connection():
        source = {"api_base_url": yt.api_base_url, "first_poll": "all", "playlists": [{"id": yt.playlists[0]}]}
        line = InProcessPipeline(
            tmp_path, clock, ua.url, sources={"youtube_playlist": source}, dlq={"auto_redrive": False}
        )
        line.run()
        line.wait(120)
        ua.then = accept
        line.wait(60)
    assert states() == {"dead": 1}


def test_items_of_a_process_that_died_wake_each_other(make_line, yt, clock):
    """One at a time is handled; none waits for the maintenance loop."""
    for _ in range(3):
        yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        watch = next(wake for wake in schedule.plan(line.rt, horizon=0) if wake.key == 1)
        first, *_ = line.step(watch)
        assert len(inbox.claim(int(first.key), clock())) == 3, "all of them were claimed by a worker that dies"
        leases.release_all(clock())
        steps = [line.step(first)]
        while nexts := [wake for wake in steps[-1] if wake.step == "ingest"]:
            steps.append(line.step(nexts[0]))
    assert len(steps) == 3
    assert states() == {"pending": 3}


def test_urgent_requests_leave_threads_for_others(make_line, yt, clock):
    for playlist in yt.playlists:
        yt.add(playlist)
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        line.run_without_delivery()
        wakes = flush.flush(line.rt, "default/urgent")
        assert len(wakes) == 4
        held = [batches.claim(int(wake.key), clock(), 40) for wake in wakes[:2]]
        assert all(held)
        assert line.rt.share.urgent == 2
        assert list(deliver.deliver(line.rt, int(wakes[2].key))) == []
        assert ua.requests == []


def test_the_next_batch_is_taken_in_the_commit_that_settles_the_one_before(make_line, yt, clock):
    for _ in range(3):
        yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        line.run_without_delivery()
        (first,) = flush.flush(line.rt, "default/urgent")  # of one watch one at a time travels
        wakes = next(deliver.deliver(line.rt, int(first.key)))
    assert (wakes, len(ua.requests)) == ([], 1), "no wake-up is needed: this thread continues"
    assert db.value("SELECT state FROM batches ORDER BY id DESC") == "sending"
    assert db.column("SELECT outcome FROM delivery_attempts ORDER BY id") == ["delivered", "sending"]
    assert states() == {"delivered": 1, "in_flight": 1, "pending": 1}


def test_a_thread_that_may_not_go_on_leaves_the_next_batch_to_a_wake_up(make_line, yt, clock):
    for _ in range(2):
        yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        line.run_without_delivery()
        (first,) = flush.flush(line.rt, "default/urgent")
        line.rt.stopping = lambda: True
        (wakes,) = deliver.deliver(line.rt, int(first.key))
    assert {wake.step for wake in wakes} == {"deliver"}
    assert db.value("SELECT state FROM batches WHERE id = ?", int(wakes[0].key)) == "ready"


def test_a_batch_that_fails_gives_its_place_to_the_next(make_line, yt, clock):
    for playlist in yt.playlists[:2]:
        yt.add(playlist)
    with ScriptedReceiver(then=DOWN) as ua:
        line = make_line(ua)
        line.run_without_delivery()
        first, second = flush.flush(line.rt, "default/urgent")
        (wakes,) = deliver.deliver(line.rt, int(first.key))
    assert [(wake.key, wake.is_retry) for wake in wakes] == [(first.key, True), (second.key, False)]


@pytest.mark.parametrize("threads", range(1, 65))
def test_threads_are_shared_out_so_that_none_is_promised_twice(threads):
    share = Share(threads)
    parts = (share.urgent, share.polls, share.requests)
    assert min(parts) >= 1
    assert threads < 4 or sum(parts) <= threads - 1, "one is left for what is quick"


def test_a_slow_receiver_leaves_a_place_for_the_others(tmp_path, clock, yt):
    for playlist in yt.playlists:
        yt.add(playlist)
    with ScriptedReceiver() as slow, ScriptedReceiver() as quick, db.connection():
        line = two_destinations(tmp_path, clock, yt, slow, quick)
        line.run_without_delivery()
        clock.move(31)
        waiting = [int(wake.key) for wake in flush.flush(line.rt, "slow/urgent")]
        assert (len(waiting), line.rt.share.urgent) == (4, 2)
        assert batches.claim(waiting[0], clock(), 40), "a request that hangs"
        assert list(deliver.deliver(line.rt, waiting[1])) == []
        (first, *_) = flush.flush(line.rt, "quick/urgent")
        next(deliver.deliver(line.rt, int(first.key)))
        assert (len(slow.requests), len(quick.requests)) == (0, 1)


def two_destinations(tmp_path, clock, yt, slow, quick) -> InProcessPipeline:
    playlists = {
        "api_base_url": yt.api_base_url,
        "playlists": [{"id": ref} for ref in yt.playlists],
        "first_poll": "all",
    }
    named = {
        name: {"endpoint": ua.url, "secret_env": f"CSI_{name.upper()}_SECRET"}
        for name, ua in {"slow": slow, "quick": quick}.items()
    }
    secrets = {f"CSI_{name.upper()}_SECRET": SECRET for name in named}
    return InProcessPipeline(
        tmp_path,
        clock,
        "",
        secrets=secrets,
        sources={"youtube_playlist": playlists},
        delivery={"destinations": named},
    )


def test_a_secret_that_is_cut_in_half_does_not_survive(make_line, yt):
    """The receiver sends our bearer back, lying across the end of what is kept of its answer and of its word."""
    body = {"ok": False, "error": "x" * 90 + SECRET, "more": "y" * 1880 + SECRET * 20}
    yt.add(yt.playlists[0])
    with ScriptedReceiver(then=(503, body, {})) as ua:
        line = make_line(ua)
        line.run()
        line.wait(120)
    ((answer, reason),) = set(db.fetch("SELECT answer, reason FROM delivery_attempts WHERE batch_id IS NOT NULL"))
    kept = [
        answer,
        reason,
        db.value("SELECT error_reason FROM dead_letter"),
        destinations.get().last_error,
        destinations.get().reason,
    ]
    assert [text for text in kept if SECRET[:6] in text] == []
    assert 1_900 <= len(answer.encode()) <= 2_000


def test_an_event_that_was_only_near_three_crashes_is_sent_once_more(make_line, yt, clock):
    yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        crash(line, clock)
        assert (states(), db.value("SELECT cause FROM dead_letter")) == ({"quarantined": 1}, "crash")
        line.wait(100, step=5)
        assert (states(), ua.requests) == ({"quarantined": 1}, [])
        line.wait(40, step=5)
    assert (states(), db.value("SELECT state FROM dead_letter"), db.value("SELECT result FROM dead_letter")) == (
        {"delivered": 1},
        "replayed",
        "delivered",
    )


def test_an_event_that_crashes_again_stays_where_it_is(make_line, yt, clock):
    yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        crash(line, clock)
        clock.move(130)
        redrive.redrive(line.rt)
        crash(line, clock)
        line.wait(600, step=20)
        assert (states(), ua.requests, dead_letters.open_count()) == ({"quarantined": 1}, [], 1)
    assert db.column("SELECT rounds FROM dead_letter ORDER BY id") == [1, 1]


def crash(line: InProcessPipeline, clock) -> None:
    """The process ends three times with this event in its hands, and the fourth sets it aside."""
    line.run_without_delivery()
    (wake,) = flush.flush(line.rt, "default/urgent")
    for _ in range(3):
        assert batches.claim(int(wake.key), clock(), 1)
        clock.move(2)
    assert list(deliver.deliver(line.rt, int(wake.key))) == []


def test_what_is_redriven_and_arrives_is_no_failure(make_line, yt):
    yt.add(yt.playlists[0])
    with ScriptedReceiver(401) as ua:
        line = make_line(ua)
        line.run()
        assert counted() == {"stored": 1, "dlq": 1}
        line.wait(60)
    assert counted() == {"stored": 1, "dlq": 1, "replayed": 1, "delivered": 1}
    assert b"csi_delivery_success_rate 1.0" in metrics.render(line.rt)


def counted() -> dict[str, float]:
    return {label: value for (_, label), value in counters.all_of("events").items()}


def test_a_receiver_that_takes_only_ten_at_once_gets_them_all(make_line, yt):
    for number in range(50):
        yt.add(yt.playlists[0], f"Number {number}")

    def narrow(request):
        return accept(request) if len(request.event_ids) <= 10 else (400, {"error": "too_many"}, {})

    with ScriptedReceiver(then=narrow) as ua:
        line = make_line(ua, tier="standard")
        line.run()
        line.wait(200, step=5)
    assert states() == {"delivered": 50}
    assert len(ua.requests) < 40


@pytest.mark.parametrize("guilty_count", [2, 5])
def test_several_guilty_events_are_all_found(make_line, yt, guilty_count):
    for number in range(20):
        yt.add(yt.playlists[0], f"Bad {number}" if number % 4 == 1 and number // 4 < guilty_count else f"Good {number}")

    def picky(request):
        titles = [event["subject"]["title"] for event in request.envelope["events"]]
        bad = any(title.startswith("Bad") for title in titles)
        return (422, {"error": "invalid_schema"}, {}) if bad else accept(request)

    with ScriptedReceiver(then=picky) as ua:
        line = make_line(ua, tier="standard")
        line.run()
        line.wait(300, step=5)
    assert states() == {"delivered": 20 - guilty_count, "dead": guilty_count}
    assert set(db.column("SELECT cause FROM dead_letter")) == {"event"}


def test_standard_waits_for_its_delay_or_its_size(make_line, yt):
    yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(
            ua, tier="standard", priority_behavior={"standard": {"batch_size": 5, "max_delay_seconds": 30}}
        )
        line.run()
        line.wait(25)
        assert ua.requests == []
        line.wait(6)
        assert len(ua.requests) == 1
        for number in range(5):
            yt.add(yt.playlists[0], f"Number {number}")
        line.wait(11)
    assert [len(request.event_ids) for request in ua.requests] == [1, 5]


@pytest.mark.parametrize("tier", ["urgent", "standard"])
def test_events_of_one_watch_arrive_in_order(make_line, yt, clock, tier):
    for number in range(30):
        video = yt.upload(yt.library, f"Number {number}")
        yt.world.add_to_playlist(yt.playlists[0], video, at=clock() - 100 + (number * 7) % 30)
    with ScriptedReceiver() as ua:
        line = make_line(ua, tier=tier, max_events_per_request=10)
        line.run()
        line.wait(40)
    arrived = [event["occurred_at"] for request in ua.requests for event in request.envelope["events"]]
    assert len(arrived) == 30
    assert arrived == sorted(arrived)


def test_a_receiver_that_verifies_utf8_is_learned(make_line, yt):
    def only_utf8(request):
        text = json.dumps(request.envelope, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        expected = signature.sign(
            SECRET, request.headers["x-csi-timestamp"], request.headers["x-csi-request-id"], text.encode()
        )
        good = request.headers["x-csi-signature"] == f"sha256={expected}"
        return accept(request) if good else (401, {"ok": False, "error": "bad_signature"}, {})

    yt.add(yt.playlists[0], "Über")
    with ScriptedReceiver(then=only_utf8) as ua:
        line = make_line(ua)
        line.run()
        assert (states(), destinations.get().json_form, len(ua.requests)) == ({"delivered": 1}, "utf8", 2)
        yt.add(yt.playlists[0], "Ärger")
        line.wait(11)
    assert (states(), len(ua.requests)) == ({"delivered": 2}, 3)
    assert db.number("SELECT COUNT(*) FROM dead_letter") == 0


def test_a_batch_whose_sending_ends_the_process_is_taken_apart_and_quarantined(make_line, yt, clock):
    for number in range(2):
        yt.add(yt.playlists[0], f"Number {number}")
    with ScriptedReceiver() as ua:
        line = make_line(ua, tier="standard")
        line.run()
        clock.move(31)
        (wake,) = flush.flush(line.rt, "default/standard")
        for _ in range(4):
            assert batches.claim(int(wake.key), clock(), 40)
            leases.release_all(clock())
            clock.move(1)
        line.wait(10)
        assert db.value("SELECT state FROM batches WHERE id = ?", wake.key) == "split"
        assert states() == {"delivered": 2}


def test_events_of_a_batch_that_is_over_are_pending_again_at_the_next_start(make_line, yt, clock):
    yt.add(yt.playlists[0], "Left behind")
    with ScriptedReceiver() as ua:
        line = make_line(ua, tier="standard")
        line.run()
        clock.move(31)
        (wake,) = flush.flush(line.rt, "default/standard")
        db.run("UPDATE batches SET state = 'released' WHERE id = ?", wake.key)
        line.wait(60, step=5)
        assert states() == {"in_flight": 1}
        maintenance.recover(line.rt)
        line.wait(60, step=5)
        assert states() == {"delivered": 1}


def test_a_refusal_after_a_redrive_is_the_events_own_fault(make_line, yt, clock):
    """Ten bad ones first: the receiver counts as away, takes a good one, and refuses the ten again one by one."""

    def picky(request):
        bad = any("BAD" in event["subject"]["title"] for event in request.envelope["events"])
        return (400, {"ok": False, "error": "bad"}, {}) if bad else accept(request)

    for number in range(10):
        yt.add(yt.playlists[number % 4], f"BAD {number}")
    with ScriptedReceiver(then=picky) as ua:
        line = make_line(ua)
        line.run()
        for ref in yt.playlists:
            yt.add(ref, "Good")
        line.wait(180, step=1)
        away = db.column("SELECT outcome FROM delivery_attempts WHERE batch_id IS NULL ORDER BY id")
        assert states() == {"dead": 10, "delivered": 4}
        assert set(db.column("SELECT cause FROM dead_letter WHERE state = 'open'")) == {"event"}
        # Twice: the five that had waited are refused in a row as well, which opens the circuit again.
        assert db.value("SELECT MAX(rounds) FROM dead_letter") <= 2, away


# --- recovery, clocks, several destinations, streaming


def test_the_ramp_after_an_outage_ends(make_line, yt):
    with ScriptedReceiver(then=DOWN) as ua:
        line = make_line(ua)
        for number in range(40):
            yt.add(yt.playlists[number % 4], f"Number {number}")
        line.run()
        line.wait(200, step=5)
        ua.then = accept
        line.wait(60)
    assert states() == {"delivered": 40}
    assert destinations.get().ramp == 0


def test_a_held_destination_sends_nothing_until_it_is_released(make_line, yt):
    yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        destinations.change("default", paused_reason="maintenance", paused_at=line.clock())
        line.run()
        line.wait(120, step=5)
        assert (ua.requests, states()) == ([], {"pending": 1})
        destinations.change("default", paused_reason=None, paused_at=None)
        line.wait(10)
    assert states() == {"delivered": 1}


def test_a_clock_that_is_off_kills_nothing(make_line, yt, clock):
    yt.add(yt.playlists[0])
    date = {"Date": "Sun, 22 Feb 2026 12:06:00 GMT"}
    with ScriptedReceiver(then=(401, {"ok": False, "error": "stale_timestamp"}, date)) as ua:
        line = make_line(ua)
        line.run()
        assert (states(), db.number("SELECT COUNT(*) FROM dead_letter")) == ({"pending": 1}, 0)
        assert "clock is +360 s from ours" in destinations.get().reason
        ua.then = accept
        line.wait(30)
    assert states() == {"delivered": 1}


@pytest.mark.parametrize("jump", [3600, 86_400, 315_360_000])
def test_a_clock_that_jumps_back_holds_nothing_up(make_line, yt, clock, jump):
    yt.add(yt.playlists[0])
    with ScriptedReceiver(503, (429, {}, {"Retry-After": "3000"})) as ua:
        line = make_line(ua)
        line.run()
        line.wait(30)
        clock.move(-jump)
        line.wait(80, step=5)
        assert len(ua.requests) == 2  # it asked for 3,000 seconds, and gets them
        line.wait(3000, step=100)
    assert states() == {"delivered": 1}


@pytest.mark.parametrize("jump", [3600, 86_400, 315_360_000])
def test_a_clock_that_jumps_ahead_and_back_holds_nothing_up(make_line, yt, clock, jump):
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        line.run()
        clock.move(jump)
        line.wait(30)
        clock.move(-jump)
        yt.add(yt.playlists[0])
        line.wait(30)
        assert len(ua.requests) == 1


def test_each_destination_gets_what_it_wants_and_fails_alone(tmp_path, clock, yt, monkeypatch):
    source = {"first_poll": "all", "poll_interval_seconds": 10, "quota_limit": 1_000_000}
    blocks = {
        "youtube_playlist": {
            "api_base_url": yt.api_base_url,
            "playlists": [{"id": yt.playlists[0], "tags": ["ai"]}, {"id": yt.playlists[1]}],
            **source,
        }
    }
    for playlist in yt.playlists[:2]:
        yt.add(playlist)
    with ScriptedReceiver() as ua, ScriptedReceiver(then=401) as broken, ScriptedReceiver() as tagged, db.connection():
        named = {
            "broken": {"endpoint": broken.url, "secret_env": "BROKEN_SECRET"},
            "tagged": {"endpoint": tagged.url, "secret_env": "TAGGED_SECRET", "tags": ["ai"]},
        }
        secrets = {"BROKEN_SECRET": "broken-secret", "TAGGED_SECRET": "tagged-secret"}
        line = InProcessPipeline(
            tmp_path, clock, ua.url, secrets=secrets, sources=blocks, delivery={"destinations": named}
        )
        line.run()
        line.wait(60, step=5)
        assert (len(ua.event_ids), len(tagged.event_ids)) == (2, 1)
        assert tagged.requests[0].headers["authorization"] == "Bearer tagged-secret"
        assert set(db.column("SELECT destination FROM dead_letter")) == {"broken"}
        assert (destinations.get("default").circuit, destinations.get("broken").circuit) == ("closed", "open")
        broken.then = accept
        line.wait(60, step=5)
        assert sorted(set(broken.event_ids)) == sorted(ua.event_ids)
    assert states() == {"delivered": 2}


def test_standard_webhooks_headers_are_accepted_by_their_own_library(make_line, yt):
    yt.add(yt.playlists[0], "Über 🚀")
    with ScriptedReceiver(503) as ua:
        line = make_line(ua, standard_webhooks=True)
        line.rt.now = line.clock = time.time  # their library reads the real clock
        line.run()
        (request,) = ua.requests
    judge_of_theirs = Webhook("whsec_" + base64.b64encode(SECRET.encode()).decode())
    assert judge_of_theirs.verify(request.body.decode(), request.headers)["batch_id"] == request.headers["webhook-id"]
    with pytest.raises(Exception, match="No matching signature"):
        judge_of_theirs.verify(request.body.decode() + " ", request.headers)


def test_a_streaming_source_sends_each_event_alone_and_several_at_once(make_line, tmp_path, clock, yt):
    for number in range(30):
        yt.add(yt.playlists[0], f"Number {number}")
    source = {
        "api_base_url": yt.api_base_url,
        "first_poll": "all",
        "priority": "high_volume",
        "streaming_mode": True,
        "max_concurrent_events": 5,
        "playlists": [{"id": yt.playlists[0]}],
    }
    with ScriptedReceiver() as ua:
        line = InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": source})
        line.run_without_delivery()
        first = flush.flush(line.rt, "default/stream")
        assert len(first) == 10, "5 in flight, and the next ones wait for their threads"
        line.run()
        line.wait(20, step=5)
    assert {len(request.event_ids) for request in ua.requests} == {1}
    assert states() == {"delivered": 30}
    assert {row.tier for row in Event.select()} == {"high_volume"}


@pytest.mark.parametrize(
    ("blocks", "threads"),
    [
        ({"reddit_subreddit": {"streaming_mode": True, "max_concurrent_events": 10}}, 10),
        ({"reddit_subreddit": {"max_concurrent_events": 10}}, 0),
        ({"reddit_subreddit": {"streaming_mode": True, "enabled": False}}, 0),
        ({"feed": {"streaming_mode": True, "max_concurrent_events": 3}, "reddit_subreddit": {}}, 3),
    ],
)
def test_threads_for_streaming_come_from_the_configuration(tmp_path, clock, blocks, threads):
    line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9", sources=blocks)
    assert line.rt.streaming_threads() == threads
    assert line.rt.destinations["default"].max_streaming_requests == (threads or 10)


def test_streamed_events_have_slots_of_their_own(tmp_path, clock, yt):
    for number in range(4):
        yt.add(yt.playlists[0], f"Number {number}")
    source = {"api_base_url": yt.api_base_url, "first_poll": "all", "streaming_mode": True, "max_concurrent_events": 3}
    playlists = {**source, "playlists": [{"id": yt.playlists[0]}]}
    with ScriptedReceiver() as ua, db.connection():
        line = InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": playlists})
        line.rt.share = Share(1, line.rt.streaming_threads())
        line.run_without_delivery()
        wakes = flush.flush(line.rt, "default/stream")
        assert all(batches.claim(int(wake.key), clock(), 40) for wake in wakes[:2])
        next(deliver.deliver(line.rt, int(wakes[2].key)))
        assert len(ua.requests) == 1, "the third slot was free"
        assert list(deliver.deliver(line.rt, int(wakes[3].key))) == [], "the thread that was free has claimed the next"


def test_a_dead_letter_of_a_streaming_source_is_sent_again_in_the_stream_lane(tmp_path, clock, yt):
    yt.add(yt.playlists[0])
    source = {"api_base_url": yt.api_base_url, "first_poll": "all", "priority": "high_volume", "streaming_mode": True}
    playlists = {**source, "playlists": [{"id": yt.playlists[0]}]}
    with ScriptedReceiver(401) as ua, db.connection():
        line = InProcessPipeline(
            tmp_path, clock, ua.url, sources={"youtube_playlist": playlists}, dlq={"auto_redrive": False}
        )
        line.run()
        assert states() == {"dead": 1}
        (result,) = replay_by_command.replay_all(line.rt, [db.value("SELECT id FROM dead_letter")])
        assert result.is_sent
        assert db.column("SELECT tier FROM outbox") == ["stream"]
        line.wait(30)
    assert states() == {"delivered": 1}


@pytest.mark.parametrize(("count", "lines"), [(1, 1), (30, 2)])
def test_log_lines_of_a_delivery_name_its_events(make_line, yt, monkeypatch, count, lines):
    for number in range(count):
        yt.add(yt.playlists[0], f"Number {number}")
    said = []
    monkeypatch.setattr(settle.log, "info", lambda message, **fields: said.append((message, fields)))
    with ScriptedReceiver() as ua:
        line = make_line(ua, tier="standard")
        line.run()
        line.wait(31)
    delivered = [fields for message, fields in said if message == "batch delivered"]
    named = [name for fields in delivered for name in fields.get("event_ids", fields.get("event_id")).split()]
    assert (sorted(named), len(delivered)) == (sorted(ua.event_ids), lines)
    assert sum(fields["events"] for fields in delivered) == count


def test_log_lines_of_dead_letters_name_their_events(make_line, yt, monkeypatch):
    yt.add(yt.playlists[0])
    said = []
    monkeypatch.setattr(settle.log, "error", lambda message, **fields: said.append((message, fields)))
    with ScriptedReceiver(then=401) as ua:
        make_line(ua).run()
    (dead,) = [fields for message, fields in said if message == "events became dead letters"]
    assert (dead["event_id"], dead["source"]) == (db.value("SELECT event_id FROM dead_letter"), "youtube_playlist")


class ProcessDeath(BaseException):
    """Ends the walk of all threads of a process, as a signal does."""


def test_only_the_event_that_ends_the_process_reaches_three_crashes(make_line, yt, clock, monkeypatch):
    """Whenever the request of the guilty event ends the process, the requests of the three others are under way."""
    for ref, title in zip(yt.playlists, ["POISON", "second", "third", "fourth"], strict=True):
        yt.add(ref, title)
    waiting: list[int] = []
    send = http.send

    def start_next_thread() -> None:
        if waiting:
            list(deliver.deliver(line.rt, waiting.pop()))

    def sending(net: object, receiver: object, body: bytes, **options: object) -> object:
        if b"POISON" in body:
            raise ProcessDeath
        start_next_thread()
        return send(net, receiver, body, **options)

    monkeypatch.setattr(http, "send", sending)
    deaths = 0
    with ScriptedReceiver() as ua:
        line = make_line(ua, priority_behavior={"urgent": {"batch_size": 1}})
        line.rt.share = Share(24)
        line.run_without_delivery()
        for _ in range(12):
            leases.release_all(clock())
            found = [wake for wake in rescue.rescue(line.rt) if wake.step in ("flush", "deliver")]
            opened = [it for wake in found if wake.step == "flush" for it in flush.flush(line.rt, str(wake.key))]
            waiting[:] = sorted(int(wake.key) for wake in [*found, *opened] if wake.step == "deliver")
            try:
                while waiting:
                    start_next_thread()
            except ProcessDeath:
                deaths += 1
            clock.move(12)
    assert (deaths, states(), db.column("SELECT cause FROM dead_letter")) == (
        3,
        {"delivered": 3, "quarantined": 1},
        ["crash"],
    )
