"""`csi trace`: the story of one item, whatever became of it, and why it was not sent where it was not."""

import pytest

from csi.config.delivery_settings import TierSettings
from csi.dlq import dead_letters
from csi.status.backlog import PendingPlace, why_pending, with_worker
from csi.status.destinations import DestinationState
from csi.status.timeline import ItemRows, Surroundings, build
from csi.status.worker import WorkerStatus
from csi.store import attempts, batches, dedupe, destinations, events, inbox, outbox, watches
from csi.store.destinations import DestinationRow
from csi.store.queries.timeline_rows import KnownKey
from tests.rigs.operator import SOURCE, operator_rig, sample_event

NOW = 1_771_761_600.0


@pytest.fixture
def operator(tmp_path):
    with operator_rig(tmp_path) as built:
        built.alive()
        yield built


def delivered(operator, name="dQw4w9WgXcQ", size=1):
    pks = [operator.event(name if number == 0 else f"{name}{number}") for number in range(size)]
    batch = operator.batch(pks, ago=31)
    failed = attempts.start(batch.id, "default", "req_1", 1, "ascii", operator.now - 30)
    attempts.finish(failed, "transient", operator.now - 29, status=503, reason="http 503", answer="busy\x1b[2J")
    passed = attempts.start(batch.id, "default", "req_2", 2, "ascii", operator.now - 9)
    attempts.finish(passed, "delivered", operator.now - 8, status=200, answer='{"ok":true}')
    held = batches.claim(batch.id, operator.now, 30)
    batches.finish(held, "delivered", operator.now - 8)
    outbox.remove(batch.id, pks)
    events.mark_delivered(pks, emitted_at="2026-02-22T12:00:00Z", now=operator.now - 8)
    return sample_event(name)


@pytest.mark.parametrize("by", ["video", "event_id", "dedupe_key"])
def test_a_delivered_item_is_told_from_first_sighting_to_receipt(operator, by):
    event = delivered(operator, size=3)
    query = {"video": "dQw4w9WgXcQ", "event_id": event.event_id, "dedupe_key": event.dedupe_key}[by]
    found = operator.json("trace", query)
    (item,) = found["items"]
    assert (item["event_id"], item["dedupe_key"], item["state"]) == (event.event_id, event.dedupe_key, "delivered")
    whats = [step["what"] for step in item["steps"]]
    assert whats == ["occurred", "seen", "stored", "batched", "attempt", "attempt", "delivered"]
    assert [step["at"] for step in item["steps"]] == sorted(step["at"] for step in item["steps"])
    tries = [step["details"] for step in item["steps"] if step["what"] == "attempt"]
    assert [(one["status"], one["outcome"], one["answer"]) for one in tries] == [
        (503, "transient", "busy\x1b[2J"),
        (200, "delivered", '{"ok":true}'),
    ]
    assert next(step["details"]["size"] for step in item["steps"] if step["what"] == "batched") == 3
    assert item["watch"] == "youtube_playlist PLone (List PLone)"
    assert item["destinations"][0]["state"] == "delivered"


@pytest.mark.parametrize("stored", ["paused", "throttled"])
def test_an_attempt_that_release_1_0_stored_as_paused_is_shown_as_throttled(operator, stored):
    batch = operator.batch([operator.event("dQw4w9WgXcQ")], ago=31)
    attempt = attempts.start(batch.id, "default", "req_1", 1, "ascii", operator.now - 30)
    attempts.finish(attempt, stored, operator.now - 29, status=429, reason="http 429")
    (item,) = operator.json("trace", "dQw4w9WgXcQ")["items"]
    (shown,) = [step["details"] for step in item["steps"] if step["what"] == "attempt"]
    assert (shown["outcome"], shown["batch_outcome"]) == ("throttled", "throttled")


def test_the_terminal_is_not_steered_by_what_others_wrote(operator):
    delivered(operator)
    text = operator.call("trace", "dQw4w9WgXcQ").stdout
    assert "\x1b" not in text
    assert "busy\\x1b[2J" in text
    assert "Über dQw4w9WgXcQ" in text


def test_a_video_in_two_lists_gives_two_stories(operator):
    delivered(operator)
    dedupe.remember(["youtube:video:dQw4w9WgXcQ:PLtwo"], "first_poll", operator.now, 90)
    items = operator.json("trace", "dQw4w9WgXcQ")["items"]
    assert {item["dedupe_key"].rsplit(":")[-1]: item["state"] for item in items} == {
        "PLone": "delivered",
        "PLtwo": "first_poll",
    }


def test_ids_are_told_apart_by_case_and_taken_literally(operator):
    delivered(operator, "abc_DEF-123")
    assert operator.json("trace", "abc_DEF-123")["found"] == 1
    assert operator.json("trace", "abc_def-123", code=1)["found"] == 0
    assert operator.json("trace", "abc%DEF-123", code=1)["found"] == 0
    assert operator.json("trace", "abcXDEF-123", code=1)["found"] == 0


def test_nothing_found_says_what_was_looked_for(operator):
    result = operator.call("trace", "no\x1bwhere")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nothing is known of 'nowhere'" in result.stderr
    assert "dedupe key" in result.stderr


@pytest.mark.parametrize("query", ["", " ", "\udcff", "x" * 5000, "'; DROP TABLE events; --"])
def test_odd_questions_are_answered(operator, query):
    assert operator.call("trace", query).exit_code == 1


@pytest.mark.parametrize("reason", ["first_poll", "filtered", "unwanted", "malformed", "discarded"])
def test_why_it_was_never_sent(operator, reason):
    dedupe.remember(["youtube:video:quiet:PLone"], reason, operator.now, 90)
    (item,) = operator.json("trace", "quiet")["items"]
    assert item["state"] == reason
    assert item["reason"]
    assert item["steps"][0]["what"] == "seen"


def test_a_reason_that_nobody_explained_is_shown_as_it_is(operator):
    dedupe.remember(["youtube:video:quiet:PLone"], "strange", operator.now, 90)
    assert "strange" in operator.json("trace", "quiet")["items"][0]["reason"]


def test_an_item_in_the_inbox(operator):
    watch = watches.find(watches.find_id(SOURCE, "PLone"))
    (number,) = inbox.put(watch, [inbox.NewItem("youtube:video:fresh:PLone", "t", "", {})], operator.now)
    assert operator.json("trace", "fresh")["items"][0]["state"] == "inbox"
    inbox.quarantine(inbox.claim(number, operator.now)[0])
    assert operator.json("trace", "fresh")["items"][0]["state"] == "quarantined"


def test_a_malformed_item_is_found_by_what_its_payload_says(operator):
    raw = {"payload": {"videoId": "broken12345"}, "watch": "PLone"}
    dead_letters.add_item(
        "malformed:x:1", SOURCE, raw, cause="malformed", reason="no title", seen_at=NOW, now=operator.now
    )
    (item,) = operator.json("trace", "broken12345")["items"]
    assert (item["state"], item["dedupe_key"]) == ("malformed", "malformed:x:1")
    assert "no title" in item["reason"]
    assert operator.json("trace", "BROKEN12345", code=1)["items"] == []


def test_a_dead_event_and_what_became_of_its_letter(operator):
    number = operator.dead("gone1234567")
    (item,) = operator.json("trace", "gone1234567")["items"]
    assert (item["state"], item["destinations"][0]["state"]) == ("dead", "dead")
    assert f"dead letter {number} (transient): http 503" in item["reason"]
    operator.json("dlq", "replay", "--id", str(number))
    (item,) = operator.json("trace", "gone1234567")["items"]
    assert (item["state"], item["destinations"][0]["state"]) == ("pending", "pending")


def test_a_dead_event_whose_row_is_gone_is_known_by_its_letter(operator):
    operator.dead("gone1234567")
    for table in ("batch_events", "events"):
        events.run(f"DELETE FROM {table}")
    (item,) = operator.json("trace", "gone1234567")["items"]
    assert (item["state"], item["event_id"]) == ("dead", sample_event("gone1234567").event_id)


def test_an_event_that_retention_removed(operator):
    dedupe.remember(["youtube:video:old12345678:PLone"], "emitted", operator.now, 90)
    (item,) = operator.json("trace", "old12345678")["items"]
    assert item["state"] == "gone"
    assert "retention" in item["reason"]


def test_an_event_that_waits_for_an_earlier_one_names_it(operator):
    first, second = operator.event("first123456"), operator.event("second12345")
    operator.batch([first])
    assert second
    (item,) = operator.json("trace", "second12345")["items"]
    assert sample_event("first123456").event_id in item["reason"]


def test_an_event_that_is_held(operator):
    operator.event("held1234567")
    destinations.change("default", paused_reason="moving house", paused_at=operator.now)
    (item,) = operator.json("trace", "held1234567")["items"]
    assert (item["state"], "moving house" in item["reason"]) == ("pending", True)


# --- the rules, one by one


TIER = TierSettings(batch_size=100, max_delay_seconds=30)


def pending(state="accepting", *, delivery_is_on=True, is_configured=True, earlier=None, due_at=NOW + 20, **row):
    destination = DestinationState("default", state, DestinationRow("default", **row), is_configured)
    place = PendingPlace("standard", due_at, TIER, earlier)
    return why_pending(destination, place, NOW, delivery_is_on=delivery_is_on)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (pending(delivery_is_on=False), "features.delivery"),
        (pending(is_configured=False), "no longer configured"),
        (
            pending("paused", paused_reason="why", paused_at=NOW),
            "paused by the operator since 2026-02-22T12:00:00Z: why",
        ),
        (
            pending("throttled", throttled_until=NOW + 40, last_error="http 429"),
            "rate-limits us (429); sending is paused until its Retry-After has passed (until 2026-02-22T12:00:40Z)",
        ),
        (
            pending("circuit_open", reason="http 401", opened_at=NOW),
            "circuit breaker is open since 2026-02-22T12:00:00Z: authentication failed (401)",
        ),
        (pending("half_open", reason="timeout: no answer within 10 s"), "half-open: no answer within 10 s"),
        (pending(earlier="src:x"), "an earlier item of the same watch is sent first: src:x"),
        (pending(), "the batch of lane standard is filling (up to 100) (until 2026-02-22T12:00:20Z)"),
        (pending(due_at=NOW - 5), "due; waiting for a free request slot in lane standard"),
    ],
)
def test_why_pending(reason, words):
    assert words in reason.timed(NOW)


def test_a_missing_worker_comes_before_every_other_reason():
    reason = with_worker(pending(), WorkerStatus(NOW, None))
    assert reason.text.startswith("no worker has ever run on this database; ")
    assert reason.is_problem


def test_a_timeline_without_any_event():
    rows = ItemRows("k", known=KnownKey("k", "first_poll", NOW, "2026-05-01T00:00:00Z"))
    found = build(rows, Surroundings(WorkerStatus(NOW, None)))
    assert (found.state, found.event_id, found.deliveries) == ("first_poll", None, ())
