"""How a watch is, when it is tried again, and whether its host is to blame (decision 0042, 17, 48)."""

import random
from itertools import pairwise

import pytest

from csi.errors import SourceError
from csi.scheduling import watch_health
from csi.scheduling.watch_health import DAY, HOUR, MINUTE, HostFacts, Verdict, WatchFacts

NOW = 1_771_761_600.0
MISSING = SourceError("it is not there", kind="missing")


def watch(state: str = "backing_off", *, ill_for: float | None = 0.0, errors: int = 1, **more: object) -> WatchFacts:
    since = None if state == "healthy" or ill_for is None else NOW - ill_for
    return WatchFacts(**({"state": state, "since": since, "errors": errors, "interval": 300.0} | more))


def host(failing: int = 1, watches: int = 20, *, ok_ago: float | None = 10.0, outage: float | None = None) -> HostFacts:
    return HostFacts(
        watches=watches,
        failing=failing,
        last_ok_at=None if ok_ago is None else NOW - ok_ago,
        outage_since=None if outage is None else NOW - outage,
    )


def judge(facts: WatchFacts, of_host: HostFacts, kind: str, seed: int = 1, **more: float) -> Verdict:
    return watch_health.judge(facts, of_host, SourceError("it fails", kind=kind, **more), NOW, random.Random(seed))


WELL = watch("healthy", errors=0)
LONG = {"ill_for": 2 * HOUR, "errors": 30}


@pytest.mark.parametrize(
    ("facts", "of_host", "kind", "state"),
    [
        (WELL, host(), "transient", "backing_off"),
        (WELL, host(), "missing", "backing_off"),
        (WELL, host(), "malformed", "backing_off"),
        (WELL, host(), "auth", "backing_off"),
        (WELL, host(), "denied", "backing_off"),
        (WELL, host(), "bug", "backing_off"),
        (WELL, host(), "throttled", "throttled"),
        (WELL, host(), "quota", "throttled"),
        (WELL, host(), "budget", "throttled"),
        # others fail, too
        (WELL, host(3, 20), "missing", "backing_off"),
        (WELL, host(4, 20), "missing", "outage"),
        (WELL, host(4, 20), "transient", "outage"),
        (WELL, host(4, 20), "malformed", "outage"),
        (WELL, host(20, 20), "auth", "backing_off"),
        (WELL, host(20, 20), "denied", "backing_off"),
        (WELL, host(20, 20), "bug", "backing_off"),
        (WELL, host(2, 10), "missing", "backing_off"),
        (WELL, host(3, 10), "missing", "outage"),
        (WELL, host(1, 1), "missing", "backing_off"),
        (WELL, host(1, 2), "missing", "backing_off"),
        (WELL, host(2, 2), "missing", "outage"),
        (WELL, host(2, 5), "missing", "outage"),
        (WELL, host(99, 500), "missing", "backing_off"),
        (WELL, host(100, 500), "missing", "outage"),
        # in an outage one more is part of it
        (WELL, host(1, 20, outage=300), "transient", "outage"),
        (WELL, host(1, 20, outage=300), "auth", "backing_off"),
        (watch("outage"), host(1, 20), "transient", "backing_off"),
        # missing for long, alone, while others are read
        (watch(**LONG), host(), "missing", "suspect"),
        (watch(**LONG), host(), "transient", "backing_off"),
        (watch(ill_for=2 * HOUR, errors=10), host(), "missing", "backing_off"),
        (watch(ill_for=HOUR / 2, errors=30), host(), "missing", "backing_off"),
        (watch(**LONG), host(ok_ago=HOUR), "missing", "backing_off"),
        (watch(**LONG), host(ok_ago=None), "missing", "backing_off"),
        (watch(**LONG), host(4, 20), "missing", "outage"),
        # suspect and dead are about the watch alone
        (watch("suspect", **LONG), host(), "missing", "suspect"),
        (watch("suspect", **LONG), host(20, 20, outage=60), "transient", "suspect"),
        (watch("suspect", **LONG), host(), "throttled", "suspect"),
        (watch("dead", **LONG), host(20, 20, outage=60), "transient", "dead"),
        (watch("dead", **LONG), host(), "missing", "dead"),
        (watch("dead", **LONG), host(), "throttled", "dead"),
        # no night has lasted a week
        (watch("outage", ill_for=6 * DAY, errors=2000), host(4, 20, outage=6 * DAY), "missing", "outage"),
        (watch("outage", ill_for=8 * DAY, errors=2000), host(4, 20, outage=8 * DAY), "missing", "suspect"),
        (watch("outage", ill_for=8 * DAY, errors=2000), host(20, 20, ok_ago=None, outage=8 * DAY), "missing", "outage"),
    ],
)
def test_state(facts, of_host, kind, state):
    assert judge(facts, of_host, kind).state == state


@pytest.mark.parametrize(
    ("facts", "of_host", "kind", "longest"),
    [
        (WELL, host(), "transient", 5),
        (watch(errors=1), host(), "transient", 10),
        (watch(errors=3, ill_for=60), host(), "transient", 40),
        (watch(errors=10, ill_for=300), host(), "transient", MINUTE),
        (watch(errors=20, ill_for=HOUR), host(), "transient", 6 * MINUTE),
        (watch(errors=500, ill_for=10 * DAY), host(), "missing", HOUR),
        (watch(errors=5000, ill_for=1000 * DAY), host(), "denied", HOUR),
        (watch(errors=500, ill_for=10 * DAY), host(ok_ago=None), "missing", MINUTE),  # nothing proves the host is there
        (watch(errors=500, ill_for=10 * DAY), host(ok_ago=2 * HOUR), "missing", MINUTE),
        (watch("dead", errors=500, ill_for=10 * DAY), host(), "missing", HOUR),
        (watch(errors=500, ill_for=DAY), host(), "quota", MINUTE),
        (watch("healthy", errors=0, interval=1.0), host(), "transient", 1),
        # scouts
        (watch("outage", errors=9, ill_for=HOUR), host(4, 20, outage=HOUR), "missing", 72),
        (watch("outage", errors=9, ill_for=HOUR), host(200, 500, outage=HOUR), "missing", 300),
        (watch("outage", errors=9, ill_for=HOUR, interval=10.0), host(200, 500, outage=HOUR), "missing", MINUTE),
        (watch("outage", errors=9, ill_for=HOUR), host(150, 150, ok_ago=None, outage=HOUR), "missing", 2700),
        (watch("outage", errors=9, ill_for=HOUR), host(5000, 5000, ok_ago=None, outage=HOUR), "missing", HOUR),
        (watch("outage", errors=9, ill_for=HOUR, costs=True), host(100, 100, outage=HOUR), "transient", 2000),
    ],
)
def test_wait_is_at_most(facts, of_host, kind, longest):
    waits = [judge(facts, of_host, kind, seed).next_at - NOW for seed in range(200)]
    assert min(waits) > 0
    assert 0.8 * longest < max(waits) <= longest


def test_waits_differ_so_that_watches_do_not_fail_in_step():
    assert len({judge(WELL, host(), "transient", seed).next_at for seed in range(20)}) == 20


@pytest.mark.parametrize(
    ("asked", "low", "high"),
    [(120.0, 120, 122), (0.0, 1, 3), (-5.0, 1, 3), (1e9, 3600, 3602), (float("inf"), 3600, 3602)],
)
def test_a_source_that_names_a_time_is_given_it(asked, low, high):
    assert low <= judge(WELL, host(), "throttled", retry_after=asked).next_at - NOW <= high


@pytest.mark.parametrize(
    ("pauses", "asked", "seconds"),
    [
        (0, 30.0, (30, 30)),
        (9, 30.0, (30, 30)),
        (0, 1e9, (3600, 3600)),
        (0, -1.0, (1, 1)),
        (0, None, (4, 5)),
        (1, None, (8, 10)),
        (3, None, (32, 40)),
        (4, None, (48, 60)),
        (900, None, (48, 60)),
        (0, float("nan"), (4, 5)),
    ],
)
def test_pause_of_a_host(pauses, asked, seconds):
    low, high = seconds
    assert low <= watch_health.pause(pauses, asked, random.Random(1)) <= high


def test_the_outage_begins_once():
    assert judge(WELL, host(4, 20), "missing").outage_begins
    assert not judge(WELL, host(5, 20, outage=5), "missing").outage_begins
    assert not judge(WELL, host(3, 20), "missing").outage_begins


@pytest.mark.parametrize(
    ("of_host", "over"),
    [
        (host(0, 20, outage=300), True),
        (host(1, 20, outage=300), True),
        (host(2, 20, outage=300), False),
        (host(49, 500, outage=300), True),
        (host(50, 500, outage=300), False),
        (host(0, 20, outage=30), False),  # it would flicker
        (host(0, 20), False),
        (host(0, 20, outage=-3600), True),  # it began in the future: the clock was set back
        (host(1, 2, outage=300), True),
    ],
)
def test_an_outage_is_over_when_most_are_back(of_host, over):
    assert watch_health.is_over(of_host, NOW) is over


def test_the_trouble_keeps_its_beginning():
    assert judge(watch("outage", ill_for=500), host(), "transient").since == NOW - 500
    assert judge(WELL, host(), "transient").since == NOW
    assert judge(watch(ill_for=-999), host(), "transient").since == NOW


@pytest.mark.parametrize("kind", ["transient", "auth", "malformed"])
def test_only_what_is_missing_is_asked_for(kind):
    assert not judge(watch(**LONG, tried_at=NOW - HOUR), host(), kind).confirm


def test_the_api_is_asked_when_it_lasts_and_then_once_a_day():
    """A whole week, failure by failure."""
    asked, at, errors, rng = [], NOW, 0, random.Random(3)
    state, since, tried = "healthy", None, None
    while at < NOW + 7 * DAY:
        of_host = HostFacts(watches=20, failing=1, last_ok_at=at)
        verdict = watch_health.judge(
            WatchFacts(state, since, errors, 300.0, tried_at=tried),
            of_host,
            MISSING,
            at,
            rng,
        )
        asked += [at - NOW] if verdict.confirm else []
        state, since, tried, errors, at = verdict.state, verdict.since, at, errors + 1, verdict.next_at
    assert HOUR <= asked[0] < 2 * HOUR
    assert len(asked) == 7
    assert [round(gap / DAY) for gap in (b - a for a, b in pairwise(asked[1:]))] == [1] * 5
    assert 150 < errors < 400  # about one an hour in the end, and never none


def test_the_api_decides_what_is_dead():
    rng = random.Random(1)
    verdict = judge(watch(**LONG), host(), "missing")
    assert watch_health.confirmed(verdict, "missing", NOW, rng).state == "dead"
    assert watch_health.confirmed(verdict, "exists", NOW, rng).state == "suspect"
    assert watch_health.confirmed(verdict, "unknown", NOW, rng) == verdict
    dead = judge(watch("dead", **LONG), host(), "missing")
    assert watch_health.confirmed(dead, "exists", NOW, rng).state == "suspect"
    assert watch_health.confirmed(dead, "unknown", NOW, rng).state == "dead"


@pytest.mark.parametrize(("count", "span"), [(0, 0), (1, 0.1), (10, 1), (200, 20), (500, 45), (5000, 45)])
def test_watches_are_brought_back_soon_but_not_at_once(count, span):
    times = watch_health.catch_up(count, NOW)
    assert len(times) == count
    assert times == sorted(times)
    assert all(NOW <= at <= NOW + span for at in times)
    busiest = max(sum(1 for at in times if int(at - NOW) == second) for second in range(46))
    assert busiest <= max(12, count // 44)


@pytest.mark.parametrize(("failing", "interval"), [(2, 300), (8, 300), (12, 300), (40, 300), (200, 300), (200, 60)])
def test_an_outages_end_is_noticed_in_time(failing, interval):
    """Whenever it ends, somebody asks soon: the scouts' turn and the catching up together stay under 90 s."""
    rng = random.Random(failing)
    of_host = host(failing, failing * 2, outage=60)
    times = {number: NOW - rng.uniform(0, 30) for number in range(failing)}
    asked = []
    while (at := min(times.values())) < NOW + 2 * HOUR:
        scout = min(times, key=lambda number: times[number])
        asked.append(at)
        facts = WatchFacts("outage", at - 300, 9, float(interval))
        of_host = HostFacts(failing * 2, failing, at - 5, at - 300)
        times[scout] = watch_health.judge(facts, of_host, MISSING, at, rng).next_at
    gaps = [b - a for a, b in pairwise(asked)]
    assert max(gaps) <= (60 if failing < 40 else 45)
    assert len(asked) / 7200 <= max(failing / interval * 2.2, 0.2)  # and nobody hammers
