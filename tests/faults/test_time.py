"""Cases 49, 76–78, 100 and the simulated week: time in hand, and what must stay true however it moves."""

import random
import threading
from collections import Counter

import pytest

from csi.pipeline import clock_check
from csi.pipeline import schedule as plan
from csi.pipeline.wake import Wake
from csi.store import db
from csi.worker import retention
from tests.conftest import HandClock
from tests.fakes.scripted_receiver import accept, json_reply
from tests.faults.oracle import Bounds
from tests.rigs.in_process import ledger_pipeline

HOUR, DAY = 3600.0, 86_400.0
YEARS = 3650 * DAY


@pytest.mark.parametrize("jump", [HOUR, DAY, YEARS], ids=["hour", "day", "ten-years"])
def test_case_76_the_clock_jumps_forward(case, tmp_path, seed, jump):
    with ledger_pipeline(tmp_path, lists=3) as s:
        s.publish(6, ref=-1)
        s.wait(30)
        before = s.shelf.reads
        s.clock.move(jump)
        s.run()
        burst = s.shelf.reads - before
        s.publish(6, ref=-1)
        s.wait(11)
        took = s.back_in()
        case.close(s.books(), seed=seed, reads_at_once=f"{burst}<=3", back=f"{took:.0f}s")
        assert burst <= 3
        assert s.states() == {"delivered": 12}


@pytest.mark.parametrize("jump", [HOUR, DAY, YEARS], ids=["hour", "day", "ten-years"])
def test_case_76_the_clock_jumps_forward_and_back(case, tmp_path, seed, jump):
    """A wrong time server for a minute: what was planned for then must not wait until then."""
    with ledger_pipeline(tmp_path, 503, lists=3) as s:
        s.publish(6, ref=-1)
        s.run()
        s.clock.move(jump)
        s.publish(3, ref=-1)
        s.wait(60, step=5)
        s.clock.move(-jump)
        s.publish(6, ref=-1)
        s.wait(75, step=5)
        took = 75 + s.back_in()
        read = s.count("SELECT COUNT(*) FROM events")
        case.close(s.books(), Bounds(timed=False), seed=seed, read=f"{read}/15", back=f"{took:.0f}s<=90s")
        assert read == 15, "a watch waits for a time that is years away"
        assert s.states() == {"delivered": 15}


@pytest.mark.parametrize("jump", [HOUR, DAY], ids=["hour", "day"])
def test_case_76_the_clock_jumps_back(case, tmp_path, seed, jump):
    with ledger_pipeline(tmp_path, 503, json_reply(429, retry_after="5"), lists=3) as s:
        s.publish(6, ref=-1)
        s.run()
        s.clock.move(-jump)
        s.publish(6, ref=-1)
        s.wait(75, step=5)
        took = 75 + s.back_in()
        read = s.count("SELECT COUNT(*) FROM events")
        case.close(s.books(), Bounds(timed=False), seed=seed, read=f"{read}/12", back=f"{took:.0f}s<=90s")
        assert read == 12
        assert s.states() == {"delivered": 12}


@pytest.mark.parametrize(
    ("checked", "wrong"),
    [
        pytest.param(True, 5 * 60, id="held"),
        pytest.param(True, 2 * HOUR, id="accepted-after-15-minutes"),
        pytest.param(False, 2 * HOUR, id="not-noticed"),
    ],
)
def test_case_100_the_clock_jumps_91_days_and_back_with_a_source_that_lags(case, tmp_path, seed, checked, wrong):
    """Each round publishes items that the source lists only after it was read: they are older than the last read."""
    jump, ahead, polled = 91 * DAY, 0.0, []
    with ledger_pipeline(tmp_path, lists=3) as s:

        def publish_late(rounds: int, seconds: float) -> None:
            for _ in range(rounds):
                before, true_now = s.shelf.reads, s.clock() - ahead
                for index in range(3):
                    s.shelf.put(s.lists[index], true_now - 45, "Listed late")
                s.wait(seconds, step=min(seconds, 60))
                polled.append(s.shelf.reads - before)

        s.rt.steady = lambda: s.clock() - ahead
        if checked:
            clock_check.begin(s.rt)
        s.publish(30, ref=-1, spacing=60)
        s.wait(30)
        retention.prune_hourly(s.rt)
        publish_late(2, 30)
        ahead = jump
        s.clock.move(jump)
        polled.clear()
        publish_late(10, wrong / 10)
        held = sum(reads == 0 for reads in polled)
        retention.prune_hourly(s.rt)
        ahead = 0.0
        s.clock.move(-jump)
        publish_late(10, 120)
        took = s.back_in()
        counted = s.count("SELECT COUNT(*) FROM dedupe_keys WHERE reason = 'first_poll'")
        case.close(
            s.books(), Bounds(timed=False), seed=seed, counted_as_seen=counted, held=f"{held}/10", back=f"{took:.0f}s"
        )
        assert s.states() == {"delivered": 30 + 3 * 22}
        assert counted == 0
        assert held == (0 if not checked else 10 if wrong < 15 * 60 else 1)


def test_case_77_suspended_for_thirty_minutes(case, tmp_path, seed):
    """A laptop lid: each watch is read once, the batches keep their size, nothing is sent twice."""
    with ledger_pipeline(tmp_path, lists=20, tier="standard") as s:
        s.publish(20, ref=-1)
        s.run()
        s.publish(200, ref=-1)
        before = s.shelf.reads
        s.clock.move(1800)
        requests = len(s.ua.requests)
        s.run()
        reads, sent = s.shelf.reads - before, len(s.ua.requests) - requests
        s.wait(40)
        took = s.back_in()
        case.close(s.books(), seed=seed, reads=f"{reads}<=20", requests=f"{sent}<=4", back=f"{took:.0f}s")
        assert reads <= 20
        assert sent <= 4
        assert s.states() == {"delivered": 220}


def test_case_78_two_schedulers_at_once(case, tmp_path, seed):
    """Four planners at the same moment: every watch is woken once, and read once even if it were woken twice."""
    with ledger_pipeline(tmp_path, lists=60) as s:
        s.publish(60, ref=-1)
        woken: list[int] = []
        start = threading.Barrier(4)

        def schedule() -> None:
            with db.connection():
                start.wait(10)
                woken.extend(int(wake.key) for wake in plan.plan(s.rt, horizon=0))

        threads = [threading.Thread(target=schedule) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        twice = len(woken) - len(set(woken))
        for key in [*woken, *woken]:
            s.step(Wake("poll", key))
        reads = s.shelf.reads
        s.wait(8)
        case.close(s.books(), seed=seed, woken=len(woken), twice=twice, reads=reads)
        assert (len(woken), twice, reads) == (60, 0, 60)
        assert s.states() == {"delivered": 60}


@pytest.mark.faults
def test_case_49_dedupe_over_a_year(case, tmp_path, seed):
    """One item stays visible all the time, others come and go: each is emitted once in 365 days."""
    with ledger_pipeline(tmp_path, lists=2, interval=DAY / 2) as s:
        s.shelf.window = 8
        total = 0
        s.shelf.put(s.lists[1], s.clock(), "always there")
        for day in range(365):
            if day % 3 == 0:
                total += len(s.publish(1, ref=0))
            s.wait(DAY, step=DAY / 2)
            retention.prune_hourly(s.rt)
        takes = Counter(one.event_id for one in s.ua.taken)
        keys = s.count("SELECT COUNT(*) FROM dedupe_keys")
        case.note(emitted=sum(takes.values()), unique=len(takes), published=total + 1, keys_left=keys, seed=seed)
        assert (sum(takes.values()), len(takes)) == (total + 1, total + 1)
        assert keys < total


class Weather:
    """What the receiver does in each hour, drawn once from the seed; six hours of it are an outage."""

    def __init__(self, seed: int, hours: int, down_from: int) -> None:
        self.rng, self.down = random.Random(seed), range(down_from, down_from + 6)
        self.hours = [self._weather(hour) for hour in range(hours)]

    def _weather(self, hour: int) -> str:
        if hour in self.down:
            return "down"
        return self.rng.choices(["fine", "moody", "busy", "broken", "locked"], [80, 8, 5, 4, 3])[0]

    def answer(self, hour: int):
        match self.hours[hour]:
            case "down":
                return json_reply(503)
            case "locked":
                return json_reply(401)
            case "busy":
                return lambda request: json_reply(429, retry_after="90") if self.rng.random() < 0.5 else accept(request)
            case "moody":
                return lambda request: json_reply(502) if self.rng.random() < 0.3 else accept(request)
            case "broken":
                return lambda request: lossy(self.rng, request)
        return accept


def lossy(rng: random.Random, request):
    from tests.fakes.scripted_receiver import Cut

    reply = accept(request)
    return reply.on(Cut(rng.randrange(40))) if rng.random() < 0.1 else reply


@pytest.mark.parametrize(
    ("hours", "down_from"),
    [pytest.param(36, 20, id="short"), pytest.param(7 * 24, 50, id="long", marks=pytest.mark.faults)],
)
def test_case_29_a_simulated_week(case, tmp_path, seed, hours, down_from):
    """The PRD's SLOs as invariants, over a week with six hours of outage and other weather."""
    weather = Weather(seed, hours, down_from)
    healthy: set[str] = set()
    with ledger_pipeline(tmp_path, lists=3, interval=900) as s:
        s.shelf.window = 10
        for hour in range(hours):
            s.ua.then = weather.answer(hour)
            keys = s.publish(weather.rng.choice([0, 1, 2, 3]), ref=-1)
            healthy |= set(keys) if weather.hours[hour] == "fine" and weather.hours[hour - 1] == "fine" else set()
            s.wait(HOUR, step=300)
        served, in_time = len(s.shelf.served), len({one.event_id for one in s.ua.taken})
        s.heal()
        took = s.back_in(limit=300, step=5)
        books = s.books()
        urgent = sorted(e.delivered_at - e.first_seen_at for e in books.events if e.key in healthy and e.delivered_at)
        p95 = urgent[int(len(urgent) * 0.95)]
        duplicates = (len(books.taken) - len({one.event_id for one in books.taken})) / len(books.taken)
        case.close(
            books,
            seed=seed,
            hours=hours,
            delivered_in_time=f"{in_time / served:.1%}>=95%",
            duplicates=f"{duplicates:.2%}<5%",
            urgent_p95=f"{p95:.2f}s<2s",
            back=f"{took:.0f}s",
        )
        assert in_time / served >= 0.95
        assert duplicates < 0.05
        assert p95 < 2
        assert s.states() == {"delivered": served}


def test_case_76_the_clock_in_hand_is_the_only_clock(case, tmp_path):
    """The harness itself: two stands with the same seed tell the same story."""
    stories = []
    for home in ("one", "two"):
        (tmp_path / home).mkdir()
        with ledger_pipeline(tmp_path / home, 503, 503, lists=2, clock=HandClock()) as s:
            s.rt.rng = random.Random(5)
            s.publish(4, ref=-1)
            s.run()
            s.wait(120)
            stories.append([(request.at, request.event_ids) for request in s.ua.requests])
            books = s.books()
    case.close(books, Bounds(), stories=len(stories))
    assert stories[0] == stories[1]
