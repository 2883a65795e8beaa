"""Days of playlists against the simulator's own quota counter: never overdrawn, never stopped, promises kept."""

import json
import random
import subprocess
import sys
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from csi.net import HttpHeaders, HttpResponse
from csi.pipeline import quota_schedule, schedule
from csi.pipeline.ingest import ingest
from csi.pipeline.poll import poll
from csi.runtime import ProcessState
from csi.simulator.youtube.app import YouTubeOptions, YouTubeSite
from csi.simulator.youtube.content import populate
from csi.simulator.youtube.data_api import ENDPOINTS
from csi.simulator.youtube.world import World
from csi.store import api_units, db, watch_admin, watches
from csi.store.db import writing
from csi.store.models import Event, Watch
from tests.rigs.in_process import InProcessPipeline

ROOT = Path(__file__).parents[2]
MIDNIGHT = datetime(2026, 2, 23, tzinfo=api_units.PACIFIC).timestamp()
SUMMER = datetime(2026, 3, 8, tzinfo=api_units.PACIFIC).timestamp()  # 23 hours
WINTER = datetime(2026, 11, 1, tzinfo=api_units.PACIFIC).timestamp()  # 25 hours


class CountingNet:
    """The simulator without a socket: the same site, the same quota counter."""

    def __init__(self, site: YouTubeSite) -> None:
        self.site = site
        self.refused = 0

    def get(self, url, *, headers=(), limits=None):
        parts = urlsplit(url)
        endpoint, query = parts.path.rsplit("/", 1)[1], dict(parse_qsl(parts.query))
        assert endpoint in ENDPOINTS
        reply = self.site.api(endpoint, query, dict(headers).get("X-Goog-Api-Key"), self.site.options.now())
        self.refused += reply.status != 200
        return HttpResponse(reply.status, HttpHeaders({"content-type": "application/json"}), reply.body, parts.path)


class Day:
    """So many playlists, polled when they are due, and nothing else."""

    def __init__(
        self, line: InProcessPipeline, site: YouTubeSite, net: CountingNet, refs: tuple[str, ...], library: str
    ) -> None:
        self.line, self.rt, self.clock, self.site, self.net = line, line.rt, line.clock, site, net
        self.refs, self.library = refs, library
        self.late: list[tuple[str, float, float]] = []
        self.waits: dict[int, float] = {}

    def begin_at(self, start: float) -> None:
        """Yesterday they were all read for the first time: a list that is new counts as active for a while."""
        for row in Watch.select():
            list(poll(self.rt, row.id))
        self.clock.time = start
        Watch.update(next_poll_at=start, wake_at=start, planned_interval=None).execute()

    def run(self, until: float) -> None:
        while True:
            row = Watch.select().where(Watch.state == "active").order_by(Watch.next_poll_at).get()
            if row.next_poll_at >= until:
                self.clock.time = until
                return
            self.clock.time = max(row.next_poll_at, self.clock.time)
            self._read(row)

    def _read(self, row: Watch) -> None:
        if row.last_success_at is not None and row.planned_interval is not None:
            waited = self.clock() - row.last_success_at
            self.waits[row.id] = max(self.waits.get(row.id, 0.0), waited)
            if waited > row.planned_interval + 1:
                self.late.append((row.ref, waited, row.planned_interval))
        for wake in [wake for wakes in poll(self.rt, row.id) for wake in wakes if wake.step == "ingest"]:
            ingest(self.rt, int(wake.key))

    def add(self, ref: str, title: str = "New") -> None:
        video = self.site.world.upload(self.library, title, at=self.clock()).id
        self.site.world.add_to_playlist(ref, video, at=self.clock())


@pytest.fixture
def day(tmp_path, clock):
    @contextmanager
    def build(count, *, start=MIDNIGHT, limit=500, buffer=50, videos=0, fast=600, idle=6000, minutes=15, **more):
        clock.time = start - 86_400
        world, options = World(), YouTubeOptions(now=clock, quota=limit)
        cast = populate(world, channels=0, playlists=count, videos=videos, at=clock() - 86_400)
        site = YouTubeSite(world, options)
        source = {
            "poll_interval_seconds": fast,
            "quota_limit": limit,
            "enrich": False,
            "playlists": [{"id": ref} for ref in cast.playlists],
            "adaptive_polling": {
                "idle_interval_seconds": idle,
                "activity_threshold_minutes": minutes,
                "min_quota_buffer": buffer,
            },
        }
        line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources={"youtube_playlist": source | more})
        net = CountingNet(site)
        line.rt.net = net
        line.rt.adapters.clear()
        with db.connection():
            today = Day(line, site, net, cast.playlists, cast.library)
            today.begin_at(start)
            yield today

    return build


@pytest.mark.parametrize(
    ("count", "videos", "promise"),
    # A day at a twentieth of the speed: 500 units of 10,000, 600 s for 30, 6,000 s for 300; so 100 lists that share
    # 9,000 units at 985 s run at 19,700 here. The last row has lists of three pages. What is promised is what the plan
    # gives for the whole day, and a little for lists that become active.
    [(3, 0, 600), (30, 0, 6_600), (100, 0, 22_000), (10, 110, 8_000)],
)
def test_a_day_of_playlists(day, count, videos, promise):
    rng = random.Random(count)
    with day(count, videos=videos) as today:
        for row in Watch.select():  # where yesterday left them
            due = MIDNIGHT + rng.uniform(0, promise)
            Watch.update(next_poll_at=due, wake_at=due).where(Watch.id == row.id).execute()
        for hour in range(24):
            today.run(MIDNIGHT + hour * 3600 + 1800)
            if hour >= 2 and hour % 4 == 0:
                today.add(rng.choice(today.refs))
            today.run(MIDNIGHT + (hour + 1) * 3600)
        used = today.site.quota.used(MIDNIGHT + 86_399)
        worst = max(today.waits.values())
        print(f"{count} playlists: {used} units of 500; every list was read every {worst:.0f} s, or more often")
        assert used == db.value("SELECT quota_used FROM api_budget WHERE id = ?", "2026-02-23"), (
            "the ledger and YouTube count alike"
        )
        assert used <= 500 - 50
        assert today.net.refused == 0
        assert today.late == [], "nobody waited longer than the plan promised"
        assert worst <= promise
        assert min(row.last_success_at for row in Watch.select()) > MIDNIGHT + 86_400 - promise
        assert Event.select().count() >= (5 if promise <= 7_200 else 3)  # what was added last may wait for tomorrow


@pytest.mark.parametrize(("start", "hours"), [(SUMMER, 23), (WINTER, 25)])
def test_days_of_23_and_25_hours(day, start, hours):
    """The last six hours of each: all that is left is used by midnight, and not before."""
    midnight = start + hours * 3600
    with day(10, start=midnight - 6 * 3600, limit=150, buffer=20) as today:
        assert api_units.day_ends(today.clock()) == midnight
        today.run(midnight - 1)
        assert 110 < today.site.quota.used(today.clock()) <= 130
        today.run(midnight + 3600)
        assert today.site.quota.used(today.clock()) < 20, "a new day begins at Pacific midnight, for both"
        assert today.net.refused == 0


def test_the_active_list_stays_fast_and_falls_back(day):
    """FR-1.3: auto-activation, and idle after the threshold; where it saves something."""
    with day(10, fast=30, idle=300, minutes=15, limit=10_000, buffer=1_000) as today:
        today.run(MIDNIGHT + 1_800)
        watch = Watch.get(ref=today.refs[0])
        assert 90 < watch.planned_interval < 110
        today.add(today.refs[0])
        today.run(MIDNIGHT + 1_800 + 130)
        assert Watch.get_by_id(watch.id).planned_interval == 30
        others = [row.planned_interval for row in Watch.select().where(Watch.id != watch.id)]
        assert all(90 < seconds < 130 for seconds in others)
        today.run(MIDNIGHT + 1_800 + 130 + 1_000)
        assert 90 < Watch.get_by_id(watch.id).planned_interval < 110


def test_few_lists_stay_fast_all_day_though_nothing_happens(day):
    with day(3, fast=30, idle=300, minutes=15, limit=10_000, buffer=1_000) as today:
        today.run(MIDNIGHT + 1_100)
        assert {row.planned_interval for row in Watch.select()} == {30}


def test_adaptive_off_is_one_interval_stretched_only_where_it_must_be(day):
    off = {"adaptive_polling": {"enabled": False, "min_quota_buffer": 100}}
    with day(3, fast=300, limit=1_000, **off) as today:
        today.run(MIDNIGHT + 3_600)
        assert {row.planned_interval for row in Watch.select()} == {300}
    with day(10, fast=300, limit=1_000, **off) as crowded:
        crowded.run(MIDNIGHT + 7_200)
        assert all(900 < row.planned_interval < 1_100 for row in Watch.select().where(Watch.state == "active"))


def test_below_the_buffer_all_are_idle(day):
    with day(3, fast=30, idle=300, minutes=15, limit=10_000, buffer=1_000) as today:
        today.run(MIDNIGHT + 600)
        api_units.book(9_100, 10_000, today.clock())
        today.add(today.refs[0])
        today.run(MIDNIGHT + 1_200)
        assert min(row.planned_interval for row in Watch.select()) >= 300


def test_a_list_with_an_interval_of_its_own_keeps_it(day):
    with day(2, fast=30, idle=300, minutes=15, limit=10_000, buffer=1_000) as today:
        Watch.update(interval_seconds=600).where(Watch.ref == today.refs[1]).execute()
        today.run(MIDNIGHT + 1_500)
        assert Watch.get(ref=today.refs[1]).planned_interval == 600
        assert Watch.get(ref=today.refs[0]).planned_interval == 20, "urgent, and the budget allows it"


def test_a_spent_budget_goes_on_after_midnight_spread_out(day):
    midnight = MIDNIGHT + 86_400
    with day(20, start=midnight - 4_000, limit=1_000, buffer=0) as today:
        today.run(midnight - 3_000)
        api_units.exhaust(1_000, today.clock())
        before = today.site.quota.used(today.clock())
        today.run(midnight - 1)
        assert today.site.quota.used(today.clock()) == before, "nothing is asked for what is not there"
        today.run(midnight + 4_000)
        reads = [row.last_success_at for row in Watch.select()]
        assert min(reads) > midnight
        assert len({int(moment // 60) for moment in reads}) > 8


def test_retries_of_an_api_that_fails_all_day_stay_within_the_plan(day):
    """Calls that fail are counted like others: half a day of errors must not use up the other half."""
    with day(30) as today:
        today.run(MIDNIGHT + 3_600)
        today.net.get = lambda url, **_: HttpResponse(500, HttpHeaders({}), b"{}", url)
        today.run(MIDNIGHT + 12 * 3600)
        del today.net.get
        assert api_units.used(today.clock()) < 350
        today.run(MIDNIGHT + 18 * 3600)
        assert api_units.used(today.clock()) <= 450
        assert {row.health for row in Watch.select()} == {"healthy"}


def test_what_was_booked_stays_booked_when_the_call_fails(day):
    with day(1, limit=1_000) as today:
        today.site.set_faults("")
        today.line.rt.net = broken = CountingNet(today.site)
        broken.get = lambda *_, **__: (_ for _ in ()).throw(RuntimeError("the process dies here"))
        today.line.rt.adapters.clear()
        list(poll(today.rt, Watch.get().id))
        assert api_units.used(today.clock()) == 1, "the API may have counted the call"


BOOKING = """
import sys
from csi.store import api_units, db
db.open_database(sys.argv[1])
print(sum(api_units.book(1, 60, float(sys.argv[2])) for _ in range(50)))
"""


def test_two_processes_book_from_one_ledger(sqlite_store):
    command = [sys.executable, "-c", BOOKING, str(sqlite_store), str(MIDNIGHT)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
    booked = [int(process.communicate(timeout=60)[0]) for process in both]
    assert sum(booked) == api_units.used(MIDNIGHT) == 60


def test_a_walk_over_midnight_is_booked_on_both_days(day):
    with day(1, start=MIDNIGHT + 86_399, videos=120) as today:
        asked = today.net.get

        def slowly(*arguments, **options):
            today.clock.move(1)
            return asked(*arguments, **options)

        today.net.get = slowly
        list(poll(today.rt, Watch.get().id))
        used = dict(db.fetch("SELECT id, quota_used FROM api_budget WHERE id >= '2026-02-23'"))
        assert sum(used.values()) == 3
        assert set(used) == {"2026-02-23", "2026-02-24"}


@pytest.mark.parametrize("moment", [MIDNIGHT, MIDNIGHT + 86_399, SUMMER + 3 * 3600, WINTER + 2 * 3600, WINTER + 86_400])
def test_every_moment_is_in_exactly_one_pacific_day(moment):
    starts, ends = api_units.day_starts(moment), api_units.day_ends(moment)
    assert starts <= moment < ends
    assert ends - starts in (23 * 3600, 24 * 3600, 25 * 3600)
    assert api_units.day_of(starts) == api_units.day_of(ends - 1) == api_units.day_of(moment) != api_units.day_of(ends)


# --- the forecast


def test_the_forecast_says_what_is_possible(day):
    with day(15, fast=30, idle=300, minutes=15, limit=10_000, buffer=1_000) as today:
        today.run(MIDNIGHT + 1_000)
        for ref in today.refs[:3]:
            today.add(ref)
        today.run(MIDNIGHT + 1_250)
        found = quota_schedule.forecast(today.rt, today.clock())
        assert [(group.watches, group.is_fast) for group in found.groups] == [(3, True), (12, False)]
        said = quota_schedule.sentence(found)
        assert said.startswith("at this rate the budget lasts until ")
        assert "; 3 playlists can stay at 30 s, 12 run at 1" in said
        assert found.used == today.site.quota.used(today.clock())
        assert found.warning is None


def test_the_forecast_names_the_hour_at_which_the_units_are_gone(day):
    with day(2, limit=10_000, buffer=1_000, start=MIDNIGHT + 12 * 3600) as today:
        for minute in range(60):  # somebody else spends a thousand an hour
            api_units.book(17, 10_000, MIDNIGHT + 11 * 3600 + minute * 60)
        api_units.book(1_000, 10_000, MIDNIGHT + 10 * 3600)
        found = quota_schedule.forecast(today.rt, MIDNIGHT + 12 * 3600)
        assert found.used == 2_020
        assert found.per_hour == pytest.approx(1_020)
        assert quota_schedule.sentence(found).startswith("at this rate the budget lasts until 18:50 Pacific")


def test_an_infeasible_configuration_is_said_with_the_sum(day, monkeypatch):
    said = []
    monkeypatch.setattr(quota_schedule.log, "warning", lambda text, **fields: said.append((text, fields)))
    with day(100, fast=30, idle=300, limit=10_000, buffer=1_000) as today:
        assert quota_schedule.infeasible(today.rt).startswith("100 playlists every 300 s need 28,800 units of 10,000;")
        quota_schedule.warn_infeasible(today.rt)
        assert "28,800 units of 10,000" in said[0][1]["sum"]


def test_what_one_more_list_would_cost(day):
    with day(9, fast=30, idle=300, limit=10_000, buffer=1_000) as today:
        today.run(MIDNIGHT + 1_500)
        quote = quota_schedule.quote(today.rt, "youtube_playlist", 30, "feed", today.clock())
        assert (quote.most_units, quote.least_units) == (2_880, 288)
        assert 90 < quote.seconds < 110


# --- other things that cost


def test_channels_that_are_read_through_the_api_are_part_of_the_plan(day):
    with day(3, fast=30, idle=300, minutes=15, limit=10_000, buffer=1_000) as today:
        for number in range(40):
            ref = f"UU{number:022d}"
            new = watches.WantedWatch("youtube_playlist", ref, None, None, (), "standard", 300, "mark_seen", via="api")
            watch_admin.add(new, today.clock())
        Watch.update(next_poll_at=MIDNIGHT + 1e6).where(Watch.via == "api").execute()
        today.run(MIDNIGHT + 1_200)
        assert Watch.get(ref=today.refs[0]).planned_interval > 30


def test_a_watch_that_costs_nothing_is_not_slowed(tmp_path, clock):
    channels = [{"channel_id": f"UC{number:022d}"} for number in range(3)]
    line = InProcessPipeline(
        tmp_path, clock, "http://127.0.0.1:9/", sources={"youtube_channel_rss": {"watchlist": channels}}
    )
    with db.connection():
        api_units.exhaust(10_000, clock())
        watch = watches.of_source("youtube_channel_rss")[0]
        with writing():
            at = quota_schedule.next_poll(line.rt, watch, False, clock())
            later = quota_schedule.next_poll(line.rt, watch, False, clock(), fresh_until=clock() + 880)
        assert 225 <= at - clock() <= 300, "earlier where that leads to its phase"
        assert 880 < later - clock() < 884
        assert Watch.get_by_id(watch.id).planned_interval == 300
        assert quota_schedule.forecast(line.rt, clock()).groups == ()


def test_the_plan_counts_what_was_usual_for_a_watch(day):
    """A list that is active all day is planned as such, though it is idle at this moment."""
    with day(4, fast=30, idle=300, minutes=15, limit=10_000, buffer=1_000) as today:
        today.run(MIDNIGHT + 60)
        before = quota_schedule.forecast(today.rt, today.clock())
        rows = list(Watch.select())
        for row in rows[:3]:
            _events(row, [MIDNIGHT - 900 * spell for spell in range(1, 90)])
        Watch.update(first_read_at=MIDNIGHT - 86_400, last_new_at=None).execute()
        today.rt.process = ProcessState()
        after = quota_schedule.forecast(today.rt, today.clock())
        assert max(group.seconds for group in after.groups) > max(group.seconds for group in before.groups)


def _events(watch: Watch, moments: list[float]) -> None:
    rows = [
        {
            "event_id": f"{watch.id}:{moment}",
            "dedupe_key": f"{watch.id}:{moment}",
            "source": watch.source,
            "event_type": "video_added_to_playlist",
            "occurred_at": "2026-02-22T00:00:00Z",
            "received_at": "2026-02-22T00:00:00Z",
            "subject_json": json.dumps({}),
            "routing_json": "{}",
            "metadata_json": "{}",
            "contract_version": "1.0",
            "watch_id": watch.id,
            "seq": 1,
            "tier": "urgent",
            "first_seen_at": moment,
        }
        for moment in moments
    ]
    Event.insert_many(rows).execute()


def test_sync_keeps_a_stretched_interval(day):
    with day(30, limit=500) as today:
        today.run(MIDNIGHT + 9_000)
        before = {row.id: row.next_poll_at for row in Watch.select()}
        schedule.sync_watches(today.rt)
        assert {row.id: row.next_poll_at for row in Watch.select()} == before
