"""The store's promises, once on SQLite and once on PostgreSQL: claims, leases, dedupe, budget, batches."""

import threading

import pytest

from csi.dlq import dead_letters, replay, search
from csi.ingester.event import CreatorSignalEvent
from csi.store import (
    api_units,
    attempts,
    batches,
    counters,
    db,
    dedupe,
    destinations,
    events,
    inbox,
    leases,
    outbox,
    watches,
)
from csi.store.models import Event, TableModel, Watch

NOW = 1_771_761_600.0

pytestmark = pytest.mark.usefixtures("store")


def want(ref: str = "PL1", **changes: object) -> watches.WantedWatch:
    values = {
        "source": "youtube_playlist",
        "name": None,
        "route_profile": None,
        "tags": (),
        "tier": "urgent",
        "interval": 30.0,
        "first_poll": "all",
    }
    return watches.WantedWatch(ref=ref, **(values | changes))


def watch(ref: str = "PL1", **changes: object) -> Watch:
    watches.sync([want(ref, **changes)], NOW)
    return Watch.get(ref=ref)


def item(key: str) -> inbox.NewItem:
    return inbox.NewItem(key, "video_added_to_playlist", "2026-02-22T12:00:00Z", {"title": "Ünï 🚀"})


def event(name: str) -> CreatorSignalEvent:
    return CreatorSignalEvent(
        event_id=f"src:{name}",
        dedupe_key=f"key:{name}",
        source="youtube_playlist",
        event_type="video_added_to_playlist",
        occurred_at="2026-02-22T12:00:00Z",
        received_at="2026-02-22T12:00:05Z",
        subject={"title": "Ünï 🚀"},
        routing={"pipeline": "p", "priority": "urgent", "tags": []},
    )


def add_events(
    *names: str, tier: str = "urgent", watch_id: int | None = None, to: tuple[str, ...] = ("default",)
) -> list[int]:
    owner = watch_id or watch().id
    for name in names:
        seq = (Event.select().count() or 0) + 1
        event_pk = events.add(event(name), watch_id=owner, seq=seq, tier=tier, first_seen_at=NOW)
        outbox.put(event_pk, to, tier=tier, watch_id=owner, seq=seq, due_at=NOW)
    return [row.id for row in Event.select().order_by(Event.id)]


def open_batch(ids: list[int], destination: str = "default", **changes: object) -> int:
    sql = f"SELECT id, event_pk, watch_id FROM outbox WHERE destination = ? AND event_pk IN ({db.marks(ids)})"
    entries = db.fetch_all(outbox.Entry, sql, destination, *ids)
    return batches.create(entries, destination=destination, **({"tier": "urgent", "now": NOW} | changes))


def test_models_and_schema_agree():
    for model in TableModel.__subclasses__():
        assert list(model.select().limit(1)) == []


def test_the_prds_columns_are_all_there(store):
    promised = {
        "events": "id event_id dedupe_key source event_type occurred_at received_at emitted_at subject_json "
        "routing_json metadata_json delivered created_at",
        "dedupe_keys": "key expires_at",
        "dead_letter": "id event_id event_json error_reason retry_count created_at",
    }
    for table, columns in promised.items():
        found = {column.name for column in db.database.get_columns(table)}
        assert set(columns.split()) <= found


def test_migrating_twice_does_nothing():
    assert db.migrate() == []
    assert db.pending_migrations() == []


# --- watches


def test_sync_adds_changes_removes_and_brings_back():
    watches.sync([want("PL1"), want("PL2")], NOW)
    watches.sync([want("PL1", interval=60.0)], NOW + 1)
    assert {row.ref: (row.state, row.interval_seconds) for row in Watch.select()} == {
        "PL1": ("active", 60.0),
        "PL2": ("removed", 30.0),
    }
    watches.sync([want("PL1"), want("PL2")], NOW + 2)
    assert {row.state for row in Watch.select()} == {"active"}


def test_sync_with_nothing_wanted_removes_all():
    watches.sync([want("PL1")], NOW)
    watches.sync([], NOW)
    assert watches.active() == []


def test_a_doubled_plan_finds_nothing():
    watch()
    assert [due.at for due in watches.plan_due(NOW, 60)] == [NOW]
    assert watches.plan_due(NOW, 60) == []


def test_a_wakeup_that_was_lost_is_repeated():
    watch()
    watches.plan_due(NOW, 60)
    assert watches.plan_due(NOW + watches.REWAKE_SECONDS - 1, 0) == []
    assert len(watches.plan_due(NOW + watches.REWAKE_SECONDS, 0)) == 1


def test_a_wake_up_that_died_with_its_worker_is_repeated_at_the_next_start():
    there = watch()
    assert [due.id for due in watches.plan_due(NOW, 0)] == [there.id]
    assert watches.plan_due(NOW + 1, 0) == [], "it is on its way"
    leases.release_all(NOW + 1)
    assert [due.id for due in watches.plan_due(NOW + 1, 0)] == [there.id]


def test_one_of_two_claims_a_watch():
    row = watch()
    assert watches.claim(row.id, NOW, 55) is not None
    assert watches.claim(row.id, NOW, 55) is None


def test_a_watch_that_is_not_due_is_claimed_only_early():
    row = watch()
    Watch.update(next_poll_at=NOW + 100).execute()
    assert watches.claim(row.id, NOW, 55) is None
    assert watches.claim(row.id, NOW, 55, early=True) is not None


def test_a_lease_that_ran_out_is_taken_over_and_the_old_holder_changes_nothing():
    row = watch()
    first = watches.claim(row.id, NOW, 55)
    second = watches.claim(row.id, NOW + 56, 55)
    assert not watches.finish(first, NOW + 90)
    assert watches.finish(second, NOW + 99, errors=3)
    assert Watch.get().next_poll_at == NOW + 99


# --- inbox


def test_an_item_is_put_once():
    row = watch()
    assert len(inbox.put(row, [item("a"), item("b")], NOW)) == 2
    assert inbox.put(row, [item("b")], NOW) == []
    assert dedupe.known(["a", "b", "c"]) == {"a", "b"}


def test_an_items_claim_is_exclusive_and_counted():
    (item_id,) = inbox.put(watch(), [item("a")], NOW)
    [held] = inbox.claim(item_id, NOW)
    assert held.claims == 0
    assert inbox.claim(item_id, NOW) == []
    [again] = inbox.claim(item_id, NOW + inbox.LEASE_SECONDS + 1)
    assert again.claims == 1
    assert not inbox.remove([held])
    assert inbox.remove([again]) == {item_id}


def test_items_that_were_woken_together_are_claimed_together_up_to_a_limit():
    ids = inbox.put(watch(), [item(f"k{number}") for number in range(inbox.TOGETHER + 3)], NOW)
    other = inbox.put(watch("PLother"), [item("other")], NOW)
    assert [held.id for held in inbox.claim(ids[1], NOW)] == ids[1 : inbox.TOGETHER + 1]
    assert [held.id for held in inbox.claim(ids[0], NOW)] == [ids[0], *ids[inbox.TOGETHER + 1 :]]
    assert [held.id for held in inbox.claim(other[0], NOW)] == other


def test_what_is_to_be_woken_later_is_not_taken_along():
    ids = inbox.put(watch(), [item(f"k{number}") for number in range(inbox.AT_ONCE + 2)], NOW)
    last = ids[inbox.AT_ONCE - 1]
    assert [held.id for held in inbox.claim(last, NOW)] == [last], "the flood's rest waits for its turn"


def test_an_item_that_a_dead_process_held_is_handled_alone():
    ids = inbox.put(watch(), [item("a"), item("b"), item("c")], NOW)
    inbox.claim(ids[0], NOW)
    later = NOW + inbox.LEASE_SECONDS + 1
    [first] = inbox.claim(ids[0], later)
    assert (first.id, first.claims) == (ids[0], 1)
    assert inbox.claim(ids[2], later) == [], "one suspect at a time"
    inbox.remove([first])
    assert [(held.id, held.claims) for held in inbox.claim(ids[2], later)] == [(ids[2], 1)]


def test_overdue_items_are_handed_out_once():
    inbox.put(watch(), [item("a"), item("b")], NOW)
    assert inbox.overdue(NOW) == []
    assert len(inbox.overdue(NOW + inbox.GRACE_SECONDS)) == 2
    assert inbox.overdue(NOW + inbox.GRACE_SECONDS) == []


# --- dedupe


def test_keys_are_new_once_and_keep_their_first_reason():
    assert dedupe.remember(["a", "b", "a"], "first_poll", NOW, 90) == {"a", "b"}
    assert dedupe.remember(["b", "c"], "emitted", NOW, 90) == {"c"}
    assert db.value("SELECT reason FROM dedupe_keys WHERE key = ?", "b") == "first_poll"


def test_a_sighting_keeps_a_key_alive_but_writes_once_a_day():
    dedupe.remember(["a"], "emitted", NOW, 90)
    before = db.value("SELECT expires_at FROM dedupe_keys WHERE key = ?", "a")
    dedupe.refresh(["a"], NOW + 3600, 90)
    assert db.value("SELECT expires_at FROM dedupe_keys WHERE key = ?", "a") == before
    dedupe.refresh(["a"], NOW + 2 * dedupe.DAY, 90)
    assert db.value("SELECT expires_at FROM dedupe_keys WHERE key = ?", "a") == "2026-05-25T12:00:00Z"


def test_more_keys_than_one_statement_takes():
    keys = [f"k{number}" for number in range(1801)]
    assert len(dedupe.remember(keys, "emitted", NOW, 90)) == 1801
    assert len(dedupe.known(keys)) == 1801


# --- events and batches


def test_an_event_is_stored_once():
    add_events("a")
    assert events.add(event("a"), watch_id=1, seq=9, tier="urgent", first_seen_at=NOW) is None
    assert events.as_contract(Event.get(), None)["subject"] == {"title": "Ünï 🚀"}


def test_events_of_a_watch_wait_for_the_earlier_ones():
    row = watch()
    (blocking,) = inbox.put(row, [item("early")], NOW)
    late = events.add(event("late"), watch_id=row.id, seq=blocking + 1, tier="urgent", first_seen_at=NOW)
    outbox.put(late, ["default"], tier="urgent", watch_id=row.id, seq=blocking + 1, due_at=NOW)
    assert outbox.claimable("default", "urgent", 10) == []
    db.run("DELETE FROM inbox")
    assert len(outbox.claimable("default", "urgent", 10)) == 1


def test_the_next_event_of_a_watch_waits_for_the_first_answer_but_not_for_a_retry():
    ids = add_events("a", "b")
    batch_id = open_batch(ids[:1])
    assert outbox.claimable("default", "urgent", 10) == []
    held = batches.claim(batch_id, NOW, 40)
    batches.retry_at(held, NOW + 20, used_attempt=True)
    assert [entry.event_pk for entry in outbox.claimable("default", "urgent", 10)] == ids[1:]


def test_heads_are_the_first_of_each_free_watch():
    first, second = watch().id, watch("PLother").id
    add_events("a1", "a2", watch_id=first)
    ids = add_events("b1", "b2", watch_id=second)
    a1, a2, b1, _ = ids
    assert [entry.event_pk for entry in outbox.heads("default", "urgent", 10)] == [a1, b1]
    batch_id = open_batch([a1])
    assert [entry.event_pk for entry in outbox.heads("default", "urgent", 10)] == [b1]
    batches.retry_at(batches.claim(batch_id, NOW, 40), NOW + 20, used_attempt=True)
    assert [entry.event_pk for entry in outbox.heads("default", "urgent", 10)] == [a2, b1]
    assert len(outbox.heads("default", "urgent", 1)) == 1
    assert outbox.heads("other", "urgent", 10) == []
    inbox.put(watch("PLother"), [item("early")], NOW)
    db.run("UPDATE outbox SET seq = ? WHERE watch_id = ?", 10**6, second)
    assert [entry.event_pk for entry in outbox.heads("default", "urgent", 10)] == [a2], (
        "an earlier item is no event yet"
    )


def test_an_event_of_no_watch_has_its_turn():
    event_pk = events.add(event("rebuilt"), watch_id=None, seq=0, tier="urgent", first_seen_at=NOW)
    outbox.put(event_pk, ["default"], tier="urgent", watch_id=None, seq=0, due_at=NOW)
    assert [entry.event_pk for entry in outbox.heads("default", "urgent", 10)] == [event_pk]
    assert [entry.event_pk for entry in outbox.claimable("default", "urgent", 10)] == [event_pk]


def test_a_lane_knows_its_oldest_and_whether_enough_wait():
    assert outbox.oldest_due("default", "urgent") is None
    add_events("a", "b")
    assert outbox.oldest_due("default", "urgent") == NOW
    assert outbox.has_pending("default", "urgent", 2)
    assert not outbox.has_pending("default", "urgent", 3)


def test_high_volume_does_not_wait_for_order():
    ids = add_events("a", "b", tier="high_volume")
    open_batch(ids[:1], tier="high_volume")
    assert len(outbox.claimable("default", "high_volume", 10)) == 1


def test_one_of_two_claims_a_batch():
    batch_id = open_batch(add_events("a"))
    assert batches.claim(batch_id, NOW, 40) is not None
    assert batches.claim(batch_id, NOW, 40) is None


def test_a_batch_is_not_claimed_before_its_time():
    batch_id = open_batch(add_events("a"))
    batches.delay(batches.find(batch_id), NOW + 20)
    assert batches.claim(batch_id, NOW + 19, 40) is None
    assert batches.claim(batch_id, NOW + 20, 40) is not None


def test_an_orphaned_batch_is_taken_over_and_counts_a_crash_not_an_attempt():
    batch_id = open_batch(add_events("a"))
    first = batches.claim(batch_id, NOW, 40)
    second = batches.claim(batch_id, NOW + 41, 40)
    assert (second.crashes, second.attempts) == (1, 0)
    assert not batches.finish(first, "delivered", NOW + 42)
    assert batches.finish(second, "delivered", NOW + 42)


def test_concurrent_claims_of_one_batch_have_one_winner(store):
    batch_id = open_batch(add_events("a"))
    winners: list[object] = []
    barrier = threading.Barrier(6)

    def race() -> None:
        barrier.wait()
        with db.connection(), db.writing():
            winners.append(batches.claim(batch_id, NOW, 40))

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(winner is not None for winner in winners) == 1


def test_released_batches_give_their_events_back():
    ids = add_events("a", "b", "c")
    keep, other = open_batch(ids[:1]), open_batch(ids[1:])
    batches.release_waiting("default", keep=keep, now=NOW)
    assert db.value("SELECT state FROM batches WHERE id = ?", other) == "released"
    assert events.counts() == {"in_flight": 1, "pending": 2}


def test_the_oldest_that_failed_is_found():
    ids = add_events("a", "b")
    first, second = open_batch(ids[:1]), open_batch(ids[1:])
    assert batches.oldest_failing("default") is None
    for batch_id in (second, first):
        batches.retry_at(batches.claim(batch_id, NOW, 40), NOW + 20, used_attempt=True)
    assert batches.oldest_failing("default") == first


def test_places_are_counted_by_lane_and_for_this_process_only():
    urgent, other, foreign = (open_batch(add_events(name)[-1:], tier=tier) for name, tier in LANES_OF.items())
    for batch in (urgent, other, foreign):
        assert batches.claim(batch, NOW, 30)
    db.run("UPDATE batches SET lease_token = ? WHERE id = ?", "somebody-else.1", foreign)
    found = {(it.tier, it.is_own): it.count for it in batches.sending(NOW)}
    assert found == {("urgent", True): 1, ("standard", True): 1, ("high_volume", False): 1}
    assert batches.sending(NOW + 31) == [], "the lease is over"


LANES_OF = {"a": "urgent", "b": "standard", "c": "high_volume"}


def test_a_place_that_becomes_free_goes_to_whoever_waits():
    first, second, urgent = (open_batch(add_events(name)[-1:], tier=tier) for name, tier in LANES_OF.items())
    db.run("UPDATE batches SET destination = 'elsewhere', tier = 'standard' WHERE id = ?", first)
    db.run("UPDATE batches SET tier = ? WHERE id = ?", "urgent", urgent)
    assert batches.next_ready("default", NOW, urgent=False).id == second, "the same receiver comes first"
    assert batches.next_ready("elsewhere", NOW, urgent=False).id == first
    assert batches.next_ready("a third", NOW, urgent=False).id == first
    assert batches.next_ready("a third", NOW, urgent=True).id == urgent


def test_an_event_is_delivered_when_every_destination_has_it():
    ids = add_events("a", to=("default", "archive"))
    for destination, state in (("default", "pending"), ("archive", "delivered")):
        batch_id = open_batch(ids, destination)
        outbox.remove(batch_id, ids)
        events.mark_delivered(ids, emitted_at="2026-02-22T12:00:00Z", now=NOW)
        batches.finish(batches.claim(batch_id, NOW, 40), "delivered", NOW)
        if state == "pending":
            assert not Event.get().delivered
    assert (Event.get().state, bool(Event.get().delivered)) == ("delivered", True)


def test_destinations_do_not_wait_for_each_other():
    ids = add_events("a", "b", to=("default", "archive"))
    open_batch(ids[:1])
    assert outbox.claimable("default", "urgent", 10) == []
    assert [entry.event_pk for entry in outbox.claimable("archive", "urgent", 10)] == ids


def test_a_part_of_a_batch_goes_on_alone():
    ids = add_events("a", "b", "c")
    batch = batches.find(open_batch(ids))
    part = batches.split_off(batch, ids[1:], NOW)
    assert [row.id for row in outbox.contents(batch.id)] == ids[:1]
    assert [row.id for row in outbox.contents(part)] == ids[1:]


def test_which_events_travelled_in_a_batch_is_kept():
    ids = add_events("a", "b")
    batch_id = open_batch(ids)
    outbox.remove(batch_id, ids)
    assert db.fetch("SELECT COUNT(*) FROM batch_events WHERE batch_id = ?", batch_id) == [(2,)]


# --- leases


def test_a_start_frees_what_a_dead_worker_held():
    row = watch()
    watches.claim(row.id, NOW, 55)
    (item_id,) = inbox.put(row, [item("a")], NOW)
    inbox.claim(item_id, NOW)
    batch_id = open_batch(add_events("e"))
    batches.claim(batch_id, NOW, 40)
    attempts.start(batch_id, "default", "req_1", 1, "ascii", NOW)
    assert leases.release_all(NOW + 1) == 3
    assert watches.claim(row.id, NOW + 1, 55) is not None
    assert inbox.claim(item_id, NOW + 1)[0].claims == 1
    assert batches.claim(batch_id, NOW + 1, 40).crashes == 1
    assert db.value("SELECT outcome FROM delivery_attempts") == "interrupted"


def test_an_orderly_end_is_not_a_crash():
    batch_id = open_batch(add_events("e"))
    batches.claim(batch_id, NOW, 40)
    assert leases.release_own(NOW + 1) == 1
    assert batches.claim(batch_id, NOW + 1, 40).crashes == 0


def test_an_item_that_was_given_back_counts_no_crash():
    (item_id,) = inbox.put(watch(), [item("a")], NOW)
    inbox.release(inbox.claim(item_id, NOW)[0], NOW + 60)
    assert inbox.overdue(NOW + 59) == []
    inbox.claim(item_id, NOW + 60)
    leases.release_own(NOW + 61)
    assert inbox.claim(item_id, NOW + 62)[0].claims == 0


def test_two_who_open_batches_of_a_lane_do_not_overtake_each_other(store):
    ids = add_events(*[f"e{number}" for number in range(6)], tier="standard")
    opened, first_has_claimed = [], threading.Event()

    def open_one(size: int, *, waits: bool) -> None:
        with db.connection(), db.writing():
            outbox.lock_lane("default", "standard")
            entries = outbox.claimable("default", "standard", size)
            if waits:
                first_has_claimed.set()
                release.wait(0.5)
            if entries:
                batches.create(entries, destination="default", tier="standard", now=NOW)
            opened.append([entry.event_pk for entry in entries])

    release = threading.Event()
    first = threading.Thread(target=open_one, args=(3,), kwargs={"waits": True})
    first.start()
    first_has_claimed.wait(5)
    open_one(3, waits=False)
    first.join()
    assert opened == [ids[:3], []]


# --- destinations, counters, budget


def test_failing_batches_are_counted_once_each_since_the_last_success():
    ids = add_events("a", "b", "c")
    rows = [open_batch([one]) for one in ids]
    endpoint = destinations.get()
    for at, batch_id in enumerate([rows[0], rows[0], rows[1]]):
        attempt = attempts.start(batch_id, "default", f"req_{at}", 1, "ascii", NOW + at)
        attempts.finish(attempt, "transient", NOW + at)
    assert destinations.failing_batches(endpoint) == 2
    destinations.change("default", last_success_at=NOW + 1.5)
    assert destinations.failing_batches(destinations.get()) == 1


def test_counters_add_up_and_histograms_have_buckets():
    counters.add("events", source="s", label="stored")
    counters.add("events", 2, source="s", label="stored")
    counters.add_all(counters.observed("poll_seconds", [0.2], counters.POLL_BUCKETS, source="s"))
    counters.add_all(counters.observed("poll_seconds", [99.0], counters.POLL_BUCKETS, source="s"))
    assert counters.all_of("events") == {("s", "stored"): 3}
    assert counters.all_of("poll_seconds") == {("s", "0.25"): 1, ("s", "+Inf"): 1}
    assert counters.all_of("poll_seconds_sum") == {("s", ""): 99.2}


def test_the_budget_is_never_overdrawn():
    assert api_units.book(3, 4, NOW)
    assert not api_units.book(2, 4, NOW)
    assert api_units.book(1, 4, NOW)
    assert api_units.used(NOW) == 4


def test_the_budget_is_exact_under_several_writers():
    def spend() -> None:
        with db.connection():
            for _ in range(10):
                api_units.book(1, 25, NOW)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert api_units.used(NOW) == 25


def test_an_exhausted_day_ends_at_pacific_midnight():
    api_units.exhaust(100, NOW)
    assert not api_units.book(1, 100, NOW)
    assert api_units.book(1, 100, api_units.day_ends(NOW))


def test_an_hour_after_the_api_reported_its_quota_as_used_up_a_call_probes_it():
    api_units.book(40, 100, NOW)
    api_units.exhaust(100, NOW)
    assert not api_units.book(1, 100, NOW + 3599)
    assert api_units.book(1, 100, NOW + 3600)
    assert api_units.used(NOW + 3600) == 41
    api_units.exhaust(100, NOW + 3601)
    assert not api_units.book(1, 100, NOW + 3602)
    assert api_units.book(1, 100, NOW + 7202)
    assert api_units.used(NOW + 7202) == 42


def test_units_that_we_used_up_ourselves_are_not_probed():
    assert api_units.book(100, 100, NOW)
    assert not api_units.book(1, 100, NOW + 2 * 3600)


@pytest.mark.parametrize(
    ("moment", "day", "ends"),
    [
        (1_771_747_199, "2026-02-21", 1_771_747_200),  # a second before 08:00 UTC
        (1_771_747_200, "2026-02-22", 1_771_833_600),
        (1_772_956_800, "2026-03-08", 1_773_039_600),  # the day of 23 hours
        (1_793_520_000, "2026-11-01", 1_793_606_400),  # the day of 25 hours: 07:00 to 08:00 UTC
    ],
)
def test_a_budget_day_is_pacific(moment, day, ends):
    assert api_units.day_of(moment) == day
    assert api_units.day_ends(moment) == ends


# --- dead letters


def bury(ids: list[int], **changes: object) -> None:
    batch = batches.find(open_batch(ids))
    values = {"cause": "transient", "reason": "http 503", "status": 503, "attempts": 3, "now": NOW}
    dead_letters.add_events(batch, outbox.contents(batch.id), **(values | changes))


def test_a_dead_letter_keeps_what_is_needed():
    bury(add_events("a"))
    (letter,) = search.newest(search.DeadLetterFilter(states=()), 2)
    assert (letter.event_id, letter.reason, letter.retry_count, letter.status) == ("src:a", "http 503", 3, 503)
    created_at = db.value("SELECT created_at FROM dead_letter")
    assert (letter.state, created_at, Event.get().state) == ("open", "2026-02-22T12:00:00Z", "dead")


def letters() -> list[dead_letters.StoredDeadLetter]:
    return search.newest(search.DeadLetterFilter(), 10)


def test_replay_closes_the_letter_when_it_was_delivered():
    bury(add_events("a"))
    assert [outcome.is_sent for outcome in replay.replay(letters(), NOW + 5)] == [True]
    assert (db.value("SELECT state FROM dead_letter"), Event.get().state, dead_letters.open_count()) == (
        "replaying",
        "pending",
        0,
    )
    dead_letters.close_replays(["src:a"], "default", result="delivered", now=NOW + 6)
    assert (db.value("SELECT state FROM dead_letter"), db.value("SELECT result FROM dead_letter")) == (
        "replayed",
        "delivered",
    )


def redriven(success_at: float = NOW, crash_before: float = NOW) -> int:
    found = dead_letters.redrivable("default", 3, success_at=success_at, crash_before=crash_before, limit=50)
    return len(replay.replay(found, NOW + 900, in_front=True))


def test_what_dies_again_is_a_new_letter_that_remembers_its_rounds():
    for round_number in range(3):
        if round_number == 0:
            bury(add_events("a"))
        assert redriven() == 1
        bury([Event.get().id])
    assert redriven() == 0
    assert dead_letters.open_count() == 1
    assert db.column("SELECT rounds FROM dead_letter ORDER BY id") == [1, 2, 3, 3]


def test_an_events_own_fault_is_never_redriven():
    bury(add_events("a"), cause="event", reason="invalid_schema")
    assert redriven() == 0


def test_a_letter_waits_until_the_receiver_has_worked_since():
    bury(add_events("a"))
    assert redriven(success_at=NOW - 1) == 0
    assert [one.event_id for one in dead_letters.probe_candidates("default", 3)] == ["src:a"]
    assert (redriven(success_at=NOW), dead_letters.probe_candidates("default", 3)) == (1, [])


def test_a_crash_letter_rests_and_is_redriven_once():
    bury(add_events("a"), cause="crash", reason="sending it ended the process 3 times")
    assert redriven(crash_before=NOW - 1) == 0
    assert redriven() == 1
    bury([Event.get().id], cause="crash", reason="sending it ended the process 3 times")
    assert (redriven(), dead_letters.open_count(), Event.get().state) == (0, 1, "quarantined")


def test_a_redriven_event_stands_before_what_came_since():
    (old,) = add_events("old")
    bury([old])
    add_events("new")
    assert redriven() == 1
    claimed = [entry.event_pk for entry in outbox.claimable("default", "urgent", 10)]
    assert claimed[0] == old


def test_replaying_an_event_that_is_pending_does_nothing():
    bury(add_events("a"))
    found = letters()
    replay.replay(found, NOW)
    (again,) = replay.replay(found, NOW)
    assert (again.is_sent, again.note) == (False, "it is already being replayed")
