"""One source does not hold up another: floods, clocks that jump, machines that sleep, two schedulers at once."""

import threading
import time
from collections import Counter
from typing import ClassVar

import pytest

from csi.adapters import registry
from csi.adapters.base import Position, RawEvent, ReadResult, WatchedSource
from csi.config.source_settings import SourceSettings, WatchSettings
from csi.ingester.event import CreatorSignalEvent
from csi.pipeline import ingest, poll, schedule
from csi.pipeline.wake import Wake
from csi.store import db, inbox, watches
from csi.store.models import Event, Watch
from tasks import dispatch
from tests.rigs.in_process import InProcessPipeline, polling_pipeline

HOUR, DAY = 3600.0, 86_400.0
YEARS = 10 * 365 * DAY


class TapWatch(WatchSettings):
    """One tap."""

    id: str

    @property
    def ref(self) -> str:
        return self.id


class TapSettings(SourceSettings):
    """sources.taps"""

    watch_key: ClassVar[str | None] = "taps"
    taps: tuple[TapWatch, ...] = ()


class Taps(WatchedSource):
    """As many items as a test wants."""

    name = "taps"
    Settings = TapSettings
    flow: ClassVar[dict[str, int]] = {}

    def read(self, position: Position) -> ReadResult:
        count = self.flow.get(position.ref, 1)
        return ReadResult(items=tuple(RawEvent("taps", "drop", {"n": n, "ref": position.ref, "text": "x" * 500},
                                            "2026-02-22T12:00:00Z") for n in range(count)))  # fmt: skip

    def normalize(self, raw: RawEvent) -> CreatorSignalEvent:
        key = f"{raw.payload['ref']}:{raw.payload['n']}"
        return CreatorSignalEvent(
            event_id=f"src:taps:{key}",
            dedupe_key=f"taps:{key}",
            source="taps",
            event_type="drop",
            occurred_at=raw.occurred_at,
            received_at=raw.occurred_at,
            subject={"platform": "taps"},
            routing={},
        )

    def item_key(self, raw: RawEvent) -> str:
        return f"taps:{raw.payload['ref']}:{raw.payload['n']}"

    def get_dedupe_key(self, event: CreatorSignalEvent) -> str:
        return event.dedupe_key


@pytest.fixture
def taps(monkeypatch, tmp_path, clock):
    """A hundred taps; the first one is open."""
    monkeypatch.setitem(registry.ADAPTERS, "taps", f"{__name__}:Taps")
    names = [f"tap{number:03}" for number in range(100)]
    source = {"first_poll": "all", "taps": [{"id": name} for name in names]}
    line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources={"taps": source})
    Taps.flow = {"tap000": 10_000}
    with db.connection():
        yield line


# --- floods (fault case 79)


def test_ten_thousand_items_from_one_source_leave_the_other_99_their_turn(taps, clock):
    line = taps
    wakes = schedule.plan(line.rt, horizon=0)
    assert len(wakes) == 100
    started = time.process_time()
    (found,) = poll.poll(line.rt, int(wakes[0].key))
    items = [wake for wake in found if wake.step == "ingest" and wake.at is None]
    later = [wake for wake in found if wake.step == "ingest" and wake.at is not None]
    assert time.process_time() - started < 5  # one transaction; other writers wait for less than that
    assert len(items) == inbox.AT_ONCE
    assert db.number("SELECT COUNT(*) FROM inbox") == 10_000
    for wake in wakes[1:]:
        items += [one for some in poll.poll(line.rt, int(wake.key)) for one in some if one.step == "ingest"]
    for wake in items:  # in the order of the queue
        ingest.ingest(line.rt, int(wake.key))
    by_watch = Counter(row.watch_id for row in Event.select(Event.watch_id))
    assert len(by_watch) == 100
    assert sorted(by_watch.values()) == [1] * 99 + [inbox.AT_ONCE]
    by_second = Counter(wake.at - clock() for wake in later)
    assert by_second == dict.fromkeys(range(1, 40), inbox.AT_ONCE // inbox.TOGETHER)
    for wake in later:
        ingest.ingest(line.rt, int(wake.key))
    assert db.number("SELECT COUNT(*) FROM inbox") == 0, "each task handles 50 items, so these few handle them all"


def test_a_flood_is_handled_ahead_of_its_turn_while_nothing_else_waits(taps, clock):
    (flood, *_), line = schedule.plan(taps.rt, horizon=0), taps
    (found,) = poll.poll(line.rt, int(flood.key))
    waiting = [wake for wake in found if wake.step == "ahead"]
    assert waiting == [Wake("ahead", ingest.AHEAD)]
    assert dispatch.PRIORITY["ahead"] < min(value for step, value in dispatch.PRIORITY.items() if step != "ahead")
    tasks = 0
    while waiting:
        waiting = [wake for wake in ingest.ingest_ahead(line.rt) if wake.step == "ahead"]
        tasks += 1
    assert tasks == (10_000 - inbox.AT_ONCE) // inbox.TOGETHER + 1
    assert db.number("SELECT COUNT(*) FROM inbox") == inbox.AT_ONCE, "their turn is now"
    assert found[0].key not in line.rt.process.ingested
    assert found[-3].key in line.rt.process.ingested, "its wake-up at its turn is dropped"


def test_one_task_at_a_time_handles_floods_ahead_and_takes_them_in_turn(taps, clock):
    Taps.flow = {"tap000": 1_000, "tap001": 1_000}
    for wake in schedule.plan(taps.rt, horizon=0)[:2]:
        list(poll.poll(taps.rt, int(wake.key)))
    with ingest._AHEAD:
        assert ingest.ingest_ahead(taps.rt) == []
    for _ in range(2 * inbox.AT_ONCE // inbox.TOGETHER):  # what is due one second from now, of both
        ingest.ingest_ahead(taps.rt)
    assert db.fetch("SELECT watch_id, COUNT(*) FROM events GROUP BY 1") == [(1, inbox.AT_ONCE), (2, inbox.AT_ONCE)]


@pytest.mark.parametrize(("tier", "is_spread"), [("standard", False), ("high_volume", True)])
def test_what_a_flood_did_ahead_takes_its_turn_where_the_time_decides_what_is_sent_first(taps, clock, tier, is_spread):
    db.run("UPDATE watches SET tier = ?", tier)
    (found,) = poll.poll(taps.rt, int(schedule.plan(taps.rt, horizon=0)[0].key))
    while found:
        found = [wake for wake in ingest.ingest_ahead(taps.rt) if wake.step == "ahead"]
    first, last = db.fetch("SELECT MIN(due_at), MAX(due_at) FROM outbox")[0]
    assert last - first == (38 if is_spread else 0)


def test_reads_that_wait_for_a_slot_come_before_what_a_flood_does_ahead(taps, clock):
    list(poll.poll(taps.rt, int(schedule.plan(taps.rt, horizon=0)[0].key)))
    slots = taps.rt.process.poll_slots
    assert slots.acquire(2, "taps", 1, urgent=False, due_at=clock())
    assert not slots.acquire(3, "taps", 1, urgent=False, due_at=clock())
    assert ingest.ingest_ahead(taps.rt) == [Wake("ahead", ingest.AHEAD, at=clock() + ingest.AHEAD_WAIT)]
    slots.release("taps")
    slots.call_next(1)
    assert [wake.at for wake in ingest.ingest_ahead(taps.rt) if wake.step == "ahead"] == [None]


def test_items_of_a_source_that_is_gone_are_not_taken_again_and_again(taps):
    (found,) = poll.poll(taps.rt, int(schedule.plan(taps.rt, horizon=0)[0].key))
    taps.rt.settings.sources.pop("taps")
    assert "ahead" in {wake.step for wake in found}
    assert ingest.ingest_ahead(taps.rt) == []


def test_a_playlist_of_5000_is_stored_whole_and_others_are_read_meanwhile(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=20, playlists=1, lists={"first_poll": "all"}) as yt:
        for number in range(5000):
            video = yt.world.upload(yt.library, f"Number {number}", at=clock() - 9000 + number).id
            yt.world.add_to_playlist(yt.playlists[0], video, at=clock() - 9000 + number)
        big = Watch.get(ref=yt.playlists[0])
        (found,) = poll.poll(yt.rt, big.id)
        assert sum(wake.step == "ingest" and wake.at is None for wake in found) == inbox.AT_ONCE
        assert db.number("SELECT COUNT(*) FROM inbox") == 5000
        assert Watch.get_by_id(big.id).pages == 100
        for wake in schedule.plan(yt.rt, horizon=0):
            list(poll.poll(yt.rt, int(wake.key)))
        assert all(row.last_success_at == clock() for row in Watch.select())


# --- polls are spread


def test_watches_that_begin_together_do_not_stay_together(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=60) as yt:
        yt.go(5)
        assert len(yt.net.asked) == 60  # the first read is at once
        yt.go(600, step=2)
        second_round = sorted(at for at, _, _ in yt.net.asked[60:])
        per_half_minute = Counter(int((at - clock.time) // 30) for at in second_round if at > clock() - 300)
        assert max(per_half_minute.values()) <= 20


# --- clocks and sleep (fault cases 76, 77)


def check_round(yt, began: float, *, seconds: float = 90) -> None:
    """Everybody is read soon, nobody often, and never many at once."""
    yt.go(seconds)
    asked = [(at, ref) for at, _, ref in yt.net.asked if at >= began]
    per_watch = Counter(ref for _, ref in asked)
    assert len(per_watch) == len(yt.channels)
    assert max(per_watch.values()) <= 2
    assert max(Counter(int(at - began) for at, _ in asked).values()) <= 15


def settled(yt) -> None:
    yt.go(310, step=5)
    yt.net.asked.clear()


def test_half_an_hour_of_sleep_ends_without_a_burst(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=60) as yt:
        settled(yt)
        began = clock.move(1800)
        check_round(yt, began)
        assert {(row.health, row.errors) for row in Watch.select()} == {("healthy", 0)}


@pytest.mark.parametrize("jump", [HOUR, DAY, YEARS])
def test_a_clock_that_jumps_ahead_and_back_neither_stalls_nor_bursts(tmp_path, clock, jump):
    with polling_pipeline(tmp_path, clock, channels=40) as yt:
        settled(yt)
        check_round(yt, clock.move(jump))
        yt.net.asked.clear()
        check_round(yt, clock.move(-jump), seconds=320)
        video = yt.upload(yt.channels[0], "After the jump")
        yt.go(320, step=5)
        assert [row.dedupe_key for row in Event.select()] == [f"youtube:video:{video}"]


def test_a_clock_that_is_set_back_under_a_running_read_loses_nothing(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=2) as yt:
        yt.go(10)
        videos = [yt.upload(ref, "Seen while the clock moved") for ref in yt.channels]
        jumps = [-HOUR, -HOUR]
        yt.net.before = lambda ref: clock.move(jumps.pop() if jumps else 0.0)
        yt.go(320)
        assert jumps == []
        yt.go(320)
        assert {row.dedupe_key for row in Event.select()} == {f"youtube:video:{video}" for video in videos}


def test_a_day_without_power_is_made_up_for_within_a_minute(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=60) as yt:
        settled(yt)
        videos = [yt.upload(ref, "Meanwhile", at=clock() + 500) for ref in yt.channels]
        began = clock.move(DAY)
        source = {"watchlist": [{"channel_id": ref} for ref in yt.channels]}
        yt.use(InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources={"youtube_channel_rss": source}))
        check_round(yt, began, seconds=60)
        assert Event.select().count() == len(videos)


# --- two at once (fault case 78)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_two_schedulers_and_many_workers_read_a_watch_once(engine, tmp_path, clock, request):
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else str(tmp_path / "csi.db")
    with polling_pipeline(tmp_path, clock, channels=20, csi={"database": url}) as yt:
        for round_ in range(3):
            yt.net.asked.clear()
            clock.move(400.0 if round_ else 0.0)
            Watch.update(next_poll_at=clock(), wake_at=clock()).execute()
            work_together(yt, 4)
            assert Counter(ref for _, _, ref in yt.net.asked) == dict.fromkeys(yt.channels, 1)
        assert {row.errors for row in Watch.select()} == {0}


def work_together(yt, workers: int) -> None:
    """Each plans, and each reads everything that it hears of, whoever planned it."""
    start, failures = threading.Barrier(workers), []

    def work() -> None:
        try:
            with db.connection():
                start.wait()
                found = schedule.plan(yt.rt, horizon=0)
                start.wait()
                for watch_id in [int(wake.key) for wake in found] + every:
                    list(poll.poll(yt.rt, watch_id))
        except Exception as error:
            failures.append(error)

    every = [row.id for row in Watch.select()]
    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_paused_watch_is_not_read_not_even_by_command(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=2) as yt:
        Watch.update(state="paused").where(Watch.ref == yt.channels[0]).execute()
        paused, active = Watch.get(ref=yt.channels[0]), Watch.get(ref=yt.channels[1])
        poll.poll_early(yt.rt, paused.id)
        assert yt.net.asked == []
        list(poll.poll(yt.rt, active.id))
        poll.poll_early(yt.rt, active.id)  # not due, but asked for
        assert len(yt.net.asked) == 2


def test_watches_of_a_source_that_is_switched_off_are_left_alone(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=2, feeds={"enabled": False}) as yt:
        watches.sync([], clock())
        Watch.insert(
            source="youtube_channel_rss",
            ref=yt.channels[0],
            tier="standard",
            interval_seconds=60,
            origin="command",
            next_poll_at=clock(),
            wake_at=clock(),
            created_at="2026-02-22T12:00:00Z",
        ).execute()
        yt.go(100)
        assert yt.net.asked == []
