"""What the store knows of watches and their hosts, on SQLite and PostgreSQL."""

import json
import random
import threading
import time
from types import SimpleNamespace

import pytest
from playhouse.migrations import Runner

from csi import clock as times
from csi.errors import SourceError
from csi.pipeline.poll import WatchLease
from csi.runtime import ProcessState
from csi.scheduling.watch_health import catch_up
from csi.store import db, dedupe, hosts, inbox, poll_history, retention, watches
from csi.store.models import Host, Watch, database

NOW = 1_771_761_600.0
HOST = "www.youtube.com"
KINDS = ["malformed", "missing", "transient"]


def want(ref: str, **changes: object) -> watches.WantedWatch:
    values: dict[str, object] = {
        "source": "youtube_channel_rss",
        "name": None,
        "route_profile": None,
        "tags": (),
        "tier": "standard",
        "interval": 300.0,
        "first_poll": "mark_seen",
        "host": HOST,
    }
    return watches.WantedWatch(ref=ref, **(values | changes))


def add(*refs: str, **changes: object) -> list[Watch]:
    watches.sync([want(ref) for ref in refs], NOW)
    if changes:
        Watch.update(**changes).where(Watch.ref.in_(refs)).execute()
    found = {row.ref: row for row in Watch.select()}
    return [found[ref] for ref in refs]


def fail(watch: Watch, at: float, kind: str = "missing", **changes: object) -> None:
    Watch.update(errors=1, error_kind=kind, last_poll_at=at, **changes).where(Watch.id == watch.id).execute()


# --- hosts


def test_a_pause_is_a_row_that_ends(store):
    assert hosts.paused_until(hosts.find(HOST), NOW) is None
    assert hosts.pause(hosts.get(HOST), NOW, NOW + 60, "429")
    assert hosts.paused_until(hosts.find(HOST), NOW + 59) == NOW + 60
    assert hosts.paused_until(hosts.find(HOST), NOW + 60) is None
    assert [host.host for host in hosts.rate_limited_or_down(NOW)] == [HOST]
    assert hosts.rate_limited_or_down(NOW + 60) == []


def test_the_longer_of_two_pauses_counts_and_they_are_one(store):
    hosts.pause(hosts.get(HOST), NOW, NOW + 60, "first")
    assert not hosts.pause(hosts.get(HOST), NOW + 1, NOW + 30, "second")
    assert hosts.pause(hosts.get(HOST), NOW + 2, NOW + 90, "third")
    host = hosts.get(HOST)
    assert (host.paused_until, host.pause_reason, host.pauses) == (NOW + 90, "third", 1)


def test_pauses_are_counted_until_the_host_answers(store):
    for number in range(3):
        hosts.pause(hosts.get(HOST), NOW + 100 * number, NOW + 100 * number + 10, "503")
    assert hosts.get(HOST).pauses == 3
    hosts.note_ok(hosts.get(HOST), NOW + 205)  # asked before the pause began
    assert hosts.get(HOST).pauses == 3
    hosts.note_ok(hosts.get(HOST), NOW + 211)
    host = hosts.get(HOST)
    assert (host.pauses, host.paused_until, host.pause_reason) == (0, None, None)


def test_a_pause_from_a_wrong_clock_holds_nobody(store):
    hosts.pause(hosts.get(HOST), NOW + 10 * 365 * 86_400, NOW + 10 * 365 * 86_400 + 60, "429")
    assert hosts.paused_until(hosts.find(HOST), NOW) is None
    assert hosts.pause(hosts.get(HOST), NOW, NOW + 5, "429")
    assert hosts.paused_until(hosts.find(HOST), NOW) == NOW + 5


def test_a_success_is_written_down_now_and_then(store):
    hosts.note_ok(hosts.get(HOST), NOW)
    hosts.note_ok(hosts.get(HOST), NOW + 1)
    assert hosts.get(HOST).last_ok_at == NOW
    hosts.note_ok(hosts.get(HOST), NOW + 10)
    assert hosts.get(HOST).last_ok_at == NOW + 10
    hosts.note_ok(hosts.get(HOST), NOW - 9999)
    assert hosts.get(HOST).last_ok_at == NOW - 9999


def test_failing_watches_are_counted_without_those_that_fail_by_themselves(store):
    one, two, three, four, five, six, seven = add("A", "B", "C", "D", "E", "F", "G")
    fail(one, NOW - 10)
    fail(two, NOW - 5000)
    fail(three, NOW - 5000, health="outage")
    fail(four, NOW - 10, kind="auth")
    fail(five, NOW - 10, health="dead")
    fail(six, NOW - 10, state="paused")
    assert hosts.count(HOST, KINDS, NOW - 600) == (5, 2)
    assert hosts.count(HOST, KINDS, NOW - 600, but=one.id) == (4, 1)
    assert hosts.count("elsewhere", KINDS, NOW - 600) == (0, 0)
    assert seven.health == "healthy"


def test_an_outage_begins_and_ends_once(store):
    assert hosts.begin_outage(hosts.get(HOST), NOW, "the feed answered 404", 4)
    assert not hosts.begin_outage(hosts.get(HOST), NOW + 1, "again", 5)
    hosts.widen_outage(hosts.get(HOST), 9)
    hosts.widen_outage(hosts.get(HOST), 2)
    seen = hosts.get(HOST)
    assert (seen.outage_since, seen.outage_watches) == (NOW, 9)
    assert hosts.end_outage(seen, NOW + 100) == hosts.Outage(100.0, 9)
    assert hosts.end_outage(seen, NOW + 100) is None
    assert hosts.rate_limited_or_down(NOW) == []


def test_recovery_is_called_out_not_too_often(store):
    host = hosts.get(HOST)
    assert hosts.note_recovery(host, NOW, 60)
    assert not hosts.note_recovery(host, NOW + 59, 60)
    assert hosts.note_recovery(host, NOW + 60, 60)
    assert hosts.note_recovery(host, NOW - 5, 60)  # the clock was set back


def test_watches_that_waited_for_a_host_are_recalled_spread_out(store):
    found = add(
        *(f"C{number:02}" for number in range(40)), health="outage", next_poll_at=NOW + 3000, wake_at=NOW + 3000
    )
    held, soon = found[0], found[1]
    Watch.update(lease_token="x", lease_until=NOW + 50).where(Watch.id == held.id).execute()
    Watch.update(next_poll_at=NOW - 1, wake_at=NOW - 1).where(Watch.id == soon.id).execute()
    Watch.update(health="backing_off").where(Watch.id == found[2].id).execute()
    assert hosts.recall(HOST, NOW, catch_up, random.Random(1)) == 37
    moved = [row.next_poll_at for row in Watch.select() if row.id not in (held.id, soon.id, found[2].id)]
    assert all(NOW <= at <= NOW + 4 for at in moved)
    assert len(set(moved)) == 37
    assert Watch.get_by_id(found[2].id).next_poll_at == NOW + 3000
    assert len(watches.plan_due(NOW + 4, 0)) == 38


# --- times


def test_a_watch_is_put_off_without_a_trace(store):
    (watch,) = add("A")
    watches.plan_due(NOW, 60)
    watches.postpone(watches.find(watch.id), NOW + 30)
    assert watches.claim(watch.id, NOW + 29, 55) is None
    after = watches.find(watch.id)
    assert (after.errors, after.health, after.last_poll_at) == (0, "healthy", None)
    assert watches.plan_due(NOW + 30, 0) == [], "the poll that postponed it schedules its wake-up"
    assert [due.at for due in watches.plan_due(NOW + 30 + watches.GRACE_SECONDS, 0)] == [NOW + 30]


def test_a_watch_that_is_being_read_is_not_postponed(store):
    (watch,) = add("A")
    watches.claim(watch.id, NOW, 55)
    watches.postpone(watch, NOW + 30)
    assert watches.find(watch.id).next_poll_at == NOW


def lease_of(watch: Watch) -> tuple[WatchLease, SimpleNamespace]:
    clock = SimpleNamespace(time=NOW)
    return WatchLease(SimpleNamespace(now=lambda: clock.time, process=ProcessState()), watch), clock


def test_a_lease_is_extended_while_pages_arrive(store):
    (watch,) = add("A")
    claimed = watches.claim(watch.id, NOW, 55)
    lease, clock = lease_of(claimed)
    for second in range(0, 600, 20):
        clock.time = NOW + second
        lease.extend()
        assert watches.claim(watch.id, NOW + second, 55, early=True) is None
    assert watches.find(watch.id).lease_until - (NOW + 580) <= 60
    assert watches.finish(claimed, NOW + 900)


@pytest.mark.parametrize("loss", [{"state": "paused"}, {"lease_token": "somebody else"}])
def test_a_lease_that_was_lost_is_noticed(store, loss):
    (watch,) = add("A")
    lease, clock = lease_of(watches.claim(watch.id, NOW, 55))
    Watch.update(**loss).where(Watch.id == watch.id).execute()
    clock.time = NOW + 1
    lease.extend()  # no write yet: more than half of it is left
    clock.time = NOW + 30
    with pytest.raises(SourceError, match="another thread reads it"):
        lease.extend()


def test_a_lease_is_that_of_its_own_watch(store):
    one, two = add("A", "B")
    watches.claim(one.id, NOW, 55)
    lease, clock = lease_of(watches.claim(two.id, NOW, 55))
    clock.time = NOW + 40
    lease.extend()
    assert (watches.find(one.id).lease_until, watches.find(two.id).lease_until) == (NOW + 55, NOW + 95)


def test_watches_that_were_missed_are_taken_up_a_few_at_a_time(store):
    add(*(f"C{number:03}" for number in range(100)))
    later = NOW + 1800
    found = watches.plan_due(later, 0)
    at_once = [due for due in found if due.at <= later]
    assert (len(found), len(at_once)) == (100, 10)
    assert max(due.at for due in found) == later + 9
    late = max(found, key=lambda due: due.at)
    assert watches.claim(late.id, later, 55) is None  # the row says so, not only the wake-up
    assert watches.claim(late.id, later + 9, 55) is not None
    assert watches.plan_due(later, 0) == []


def test_a_thousand_that_were_missed_are_back_within_a_minute(store):
    add(*(f"C{number:04}" for number in range(1000)))
    assert max(due.at for due in watches.plan_due(NOW + 1800, 0)) <= NOW + 1860


def test_a_crowded_worker_is_no_reason_to_put_off(store):
    """Woken, and waiting for a thread: only its wake-up is repeated."""
    add(*(f"C{number:02}" for number in range(30)))
    for round_ in range(10):
        found = watches.plan_due(NOW + 16 * round_, 0)
        assert len(found) == 30
        assert all(due.at == NOW for due in found)


@pytest.mark.parametrize("jump", [3600.0, 86_400.0, 10 * 365 * 86_400.0])
def test_a_clock_that_was_set_back_stalls_nobody(store, jump):
    read, held, new = add("read", "held", "new")
    watches.finish(watches.claim(read.id, NOW, 55), NOW + 300)
    watches.claim(held.id, NOW, 55)
    Watch.update(next_poll_at=NOW + 9999 - 3600 + jump).where(Watch.id == new.id).execute()
    now = NOW - jump
    assert watches.reset_future_times(now) == 3
    assert watches.find(read.id).next_poll_at == now + 300
    assert watches.claim(held.id, now, 55) is not None
    assert watches.find(new.id).next_poll_at == now
    assert watches.reset_future_times(now) == 0


def test_a_clock_that_goes_right_is_left_alone(store):
    (watch,) = add("A")
    watches.finish(watches.claim(watch.id, NOW, 55), NOW + 3600)
    assert watches.reset_future_times(NOW - 50) == 0
    assert watches.find(watch.id).next_poll_at == NOW + 3600


def test_only_watches_of_these_sources_are_woken(store):
    add("A")
    assert watches.plan_due(NOW, 0, sources=["youtube_playlist"]) == []
    assert len(watches.plan_due(NOW, 0, sources=["youtube_channel_rss"])) == 1


# --- the configuration and the commands


def test_a_pause_outlives_the_configurations_return(store):
    (watch,) = add("A")
    Watch.update(state="paused").execute()
    watches.sync([want("A")], NOW)
    assert watches.find(watch.id).state == "paused"
    watches.sync([], NOW)
    assert watches.find(watch.id).state == "removed"


def test_watches_added_by_command_stay_when_the_configuration_changes(store):
    add("A", "B", origin="command")
    watches.sync([want("A", filters='{"include": ["short"]}', via="both")], NOW)
    a, b = Watch.get(ref="A"), Watch.get(ref="B")
    assert (a.origin, a.state, a.via, a.filters_json) == ("config", "active", "both", '{"include": ["short"]}')
    assert (b.origin, b.state) == ("command", "active")
    watches.sync([], NOW)
    assert (Watch.get(ref="A").state, Watch.get(ref="B").state) == ("removed", "active")


def test_a_restart_does_not_shorten_the_wait_of_a_watch_that_fails(store):
    (watch,) = add("A", health="dead", next_poll_at=NOW + 3000)
    watches.sync([want("A")], NOW)
    assert watches.find(watch.id).next_poll_at == NOW + 3000


# --- items


def items(count: int) -> list[inbox.NewItem]:
    return [inbox.NewItem(f"k{n:05}", "t", "2026-02-22T12:00:00Z", {"n": n, "text": "x" * 800}) for n in range(count)]


def test_ten_thousand_items_are_stored_in_a_moment_and_in_order(store):
    (watch,) = add("A")
    dump = items(10_000)
    started = time.process_time()  # of this process: a busy machine is no fault of ours
    with db.writing():
        stored = inbox.put(watch, dump, NOW)
    assert time.process_time() - started < 1.5
    assert len(stored) == 10_000
    assert db.column("SELECT item_key FROM inbox ORDER BY id") == [item.key for item in dump]
    assert inbox.put(watch, dump[:10], NOW) == []


def test_a_flood_is_handed_out_a_seconds_worth_at_a_time(store):
    (watch,) = add("A")
    inbox.put(watch, items(2_000), NOW)
    handed = [len(inbox.overdue(NOW + second)) for second in range(8)]
    assert handed == [0, 0, 0, 0, 0, 250, 250, 250]  # when the wake-ups of the poll were lost
    assert db.number("SELECT COUNT(*) FROM inbox WHERE wake_at <= ?", NOW + 7) == 0


def test_another_watchs_item_does_not_wait_behind_a_flood(store):
    flood, other = add("A", "B")
    inbox.put(flood, items(5_000), NOW)
    (item,) = inbox.put(other, [inbox.NewItem("other", "t", "2026-02-22T12:00:00Z", {})], NOW)
    handed = {id_: half / 2 for half in range(20) for id_ in inbox.overdue(NOW + half / 2)}
    assert handed[item] <= inbox.GRACE_SECONDS + 1
    assert len(handed) < 3_000


# --- keys


def test_a_gaps_other_end_is_what_was_known_before_it(store):
    (watch,) = add("A")
    dedupe.remember(["old"], "emitted", NOW - 100, 90)
    dedupe.remember(["new"], "emitted", NOW, 90)
    db.run("INSERT INTO dedupe_keys (key, expires_at, reason) VALUES ('ancient', ?, 'emitted')", times.iso(NOW))
    inbox.put(watch, [inbox.NewItem("waiting", "t", "", {})], NOW - 1)
    inbox.put(watch, [inbox.NewItem("fresh", "t", "", {})], NOW)
    assert dedupe.known_before(["old", "new", "ancient", "waiting", "fresh", "none"], NOW) == {
        "old",
        "ancient",
        "waiting",
    }


def expire(now: float) -> int:
    """One step of retention; how many keys it deleted."""
    return retention.drop_keys(retention.RetentionLimits(events=0, dead_letters=0, keys=now), None).total


def test_keys_expire_unless_their_items_are_still_seen(store):
    day = 86_400.0
    dedupe.remember(["gone", "seen"], "emitted", NOW, 90)
    dedupe.refresh(["seen"], NOW + 60 * day, 90)
    assert expire(NOW + 89 * day) == 0
    assert expire(NOW + 91 * day) == 1
    assert dedupe.known(["gone", "seen"]) == {"seen"}
    assert expire(NOW + 151 * day) == 1


@pytest.mark.parametrize("days", [1, 2, 90])
def test_a_key_whose_item_is_read_every_six_hours_never_runs_out(store, days):
    """Pruning comes between two reads: a key must not wait for its refresh until it is over."""
    dedupe.remember(["seen"], "emitted", NOW, days)
    for moment in range(0, (days + 2) * 86_400, 6 * 3600):
        dedupe.refresh(["seen"], NOW + moment, days)
        assert expire(NOW + moment + 6 * 3600) == 0, f"gone after {moment / 3600:g} hours"


def test_expiry_goes_in_small_steps(store):
    dedupe.remember([f"k{n}" for n in range(250)], "emitted", NOW, 1)
    assert [expire(NOW + 10 * 86_400) for _ in range(4)] == [100, 100, 50, 0]


# --- two at once


def race(count: int, action) -> list[object]:
    """The same action in so many threads at the same moment."""
    start, found, lock = threading.Barrier(count), [], threading.Lock()

    def run() -> None:
        with db.connection():
            start.wait()
            result = action()
        with lock:
            found.append(result)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_schedulers_wake_each_watch_once(store):
    add(*(f"C{number:02}" for number in range(50)))
    for round_ in range(5):
        now = NOW + 20.0 * round_
        woken = [due.id for plan in race(4, lambda now=now: watches.plan_due(now, 0)) for due in plan]
        assert len(woken) == len(set(woken)) == 50


def test_a_watch_is_read_by_one_of_many(store):
    for watch in add(*(f"C{number:02}" for number in range(10))):
        held = [one for one in race(4, lambda watch=watch: watches.claim(watch.id, NOW, 55)) if one]
        assert len(held) == 1


def test_an_outage_is_announced_by_one_of_many(store):
    host = hosts.get(HOST)
    assert sum(race(4, lambda: hosts.begin_outage(host, NOW, "404", 3))) == 1
    seen = hosts.get(HOST)
    assert sum(one is not None for one in race(4, lambda: hosts.end_outage(seen, NOW + 90))) == 1


# --- the migration


OLD_LETTERS = {
    "src:1": json.dumps({"event_id": "src:1", "subject": {"title": '"dedupe_key": "x"'}, "dedupe_key": "key:1"}),
    "raw:2": json.dumps({"raw": {"payload": {}}}),
    "src:3": "not JSON",
}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_an_installation_of_the_first_version_is_brought_up_to_date(engine, tmp_path, request):
    url = str(tmp_path / "csi.db") if engine == "sqlite" else request.getfixturevalue("postgres_url")
    db.open_database(url)
    with db.connection():
        Runner(database.obj, directory=str(db.MIGRATIONS)).up("0001_walk")
        database.execute_sql(
            "INSERT INTO watches (source, ref, tier, interval_seconds, next_poll_at, wake_at, created_at) "
            "VALUES ('youtube_playlist', 'PL1', 'urgent', 30, 0, 0, '2026-02-22T12:00:00Z')"
        )
        for event_id, payload in OLD_LETTERS.items():
            database.execute_sql(
                "INSERT INTO dead_letter (event_id, event_json, source, cause, died_at) "
                f"VALUES ('{event_id}', '{payload}', 's', 'event', 1)"
            )
    assert db.pending_migrations()[0] == "0002_sources"
    db.migrate()
    with db.connection():
        watch = Watch.get()
        assert (watch.health, watch.via, watch.pages, watch.filters_json) == ("healthy", "feed", 1, "{}")
        assert (watch.ref, watch.errors, watch.note, json.loads(watch.first_poll)) == ("PL1", 0, None, "mark_seen")
        assert Host.select().count() == 0
        assert db.column("SELECT item_key FROM dead_letter ORDER BY id") == [
            "key:1",
            "raw:2",
            "src:3",
        ]


# --- history of reads


def test_the_history_keeps_the_last_200_reads_of_each_watch(store):
    first, second = add("UC1", "UC2")
    for number in range(poll_history.KEPT + 7):
        read = poll_history.PastRead(NOW + number, 0.25, "new" if number % 2 else "failed", number % 2, "http 500")
        Watch.update(**poll_history.add(first, read)).where(Watch.id == first.id).execute()
        first = Watch.get_by_id(first.id)
    Watch.update(**poll_history.add(second, read)).where(Watch.id == second.id).execute()
    reads = poll_history.of_watch(first.id)
    assert [one.at for one in reads] == [NOW + number for number in range(7, poll_history.KEPT + 7)]
    assert reads[-1] == poll_history.PastRead(NOW + 206, 0.25, "failed", 0, "http 500")
    assert len(poll_history.of_watch(second.id)) == 1


def test_retention_drops_the_history_of_removed_watches_only(store):
    gone, kept = add("UC1", "UC2", last_poll_at=NOW)
    for watch in (gone, kept):
        read = poll_history.PastRead(NOW, 0.25, "unchanged", 0, None)
        Watch.update(**poll_history.add(watch, read)).where(Watch.id == watch.id).execute()
    Watch.update(state="removed").where(Watch.id == gone.id).execute()
    for events, left in ((NOW, 2), (NOW + 1, 1)):
        limits = retention.RetentionLimits(events, events, events)
        counted = poll_history.count_of_removed(events)
        assert retention.drop_poll_history(limits, 0).total == counted == 2 - left
        assert len(poll_history.of_watch(gone.id)) + len(poll_history.of_watch(kept.id)) == left
