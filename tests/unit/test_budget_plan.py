"""How often each watch can be read so that the units last until midnight (decision 0042, 14, 42)."""

import heapq
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi.scheduling import cadence
from csi.scheduling.quota import DAY, EARLY, Load, Plan, UnitBudget, make_plan, next_time

SPEEDS = cadence.Speeds(30, 300, 900)


def lists(count: int, *, active: int = 0, busy: float = 0.0, units: int = 1, fast: float = 30, slow: float = 300):
    """So many playlists, the first of them active; `busy` is the share of the day in which those are."""
    return [
        Load(key, fast, slow, units, is_active=key < active, busy=busy if key < active else 0.0) for key in range(count)
    ]


def budget(*, used: int = 0, limit: int = 10_000, buffer: int = 1_000, seconds: float = DAY) -> UnitBudget:
    return UnitBudget(limit, used, buffer, seconds)


def intervals(loads: list[Load], **left: float) -> list[int]:
    plan = make_plan(loads, budget(**left))
    return [round(plan.interval(load)) for load in loads]


@pytest.mark.parametrize(
    ("loads", "left", "expected"),
    [
        # three at 30 s fit into the day: nothing is saved by slowing them down
        (lists(3), {}, {30}),
        (lists(3, active=3, busy=1.0), {}, {30}),
        # ten idle ones share 9,000 units: 96 s (and a little, because reads come early)
        (lists(10), {}, {98}),
        # thirty fit at about the idle interval; one hundred do not, and are stretched by one factor
        (lists(30), {}, {295}),
        (lists(100), {}, {985}),
        # lists of five pages cost five units each
        (lists(3, units=5), {}, {148}),
        # an active list keeps 30 s, and the idle ones share what is left
        (lists(10, active=1, busy=0.1), {}, {30, 101}),
        (lists(10, active=2, busy=1.0), {}, {30, 229}),
        # where even that does not fit, all are stretched alike, and the active ones stay faster
        (lists(15, active=3, busy=1.0), {}, {41, 414}),
        (lists(100, active=1, busy=0.01), {}, {99, 986}),
        # one speed (adaptive polling is off): only stretched where it would run dry
        (lists(3, fast=60, slow=60), {}, {60}),
        (lists(100, fast=300, slow=300), {}, {985}),
        # 23 and 25 hours: what counts is the time that is left
        (lists(10), {"seconds": DAY - 3600}, {94}),
        (lists(10), {"seconds": DAY + 3600}, {103}),
        # late in the day with much left: fast again; with little left: slow
        (lists(10), {"seconds": 3600, "used": 2_000}, {30}),
        (lists(10), {"seconds": 3600, "used": 8_000}, {37}),
        (lists(10), {"seconds": 43_200, "used": 8_500}, {886}),
        # a limit of any size is believed
        (lists(3), {"limit": 10_000_000}, {30}),
        (lists(3), {"limit": 100, "buffer": 0}, {2741}),
    ],
)
def test_the_shortest_intervals_that_fit(loads, left, expected):
    assert set(intervals(loads, **left)) == expected


@pytest.mark.parametrize("used", [9_001, 9_500, 9_990])
def test_below_the_buffer_everything_is_idle(used):
    """FR-1.3: forced idle; and never faster than half of what is left allows."""
    loads = lists(3, active=3, busy=1.0)
    for seconds in (600.0, 43_200.0):
        plan = make_plan(loads, budget(used=used, seconds=seconds))
        assert min(plan.interval(load) for load in loads) >= 300
        assert plan.demand(loads, seconds) <= (10_000 - used) / 2 + 1e-6


def test_nothing_left_means_midnight():
    plan = make_plan(lists(3), budget(used=10_000))
    assert plan.interval(lists(1)[0]) == math.inf
    assert next_time(1_000.0, math.inf, 4_000.0, 96.0) == 4_096.0


def test_nothing_watched_is_a_plan_too():
    assert make_plan([], budget()) == Plan(0.0)


@pytest.mark.parametrize(
    ("interval", "at"),
    [
        (100, 1_100),  # before midnight
        (500, 1_500),
        (1_000, 1_500 + 0.5 * 96),  # half of it is over at midnight; the other half goes on at tomorrow's pace
        (5_000, 1_500 + 0.9 * 96),
    ],
)
def test_an_interval_over_midnight_goes_on_at_tomorrows_pace(interval, at):
    assert next_time(1_000.0, interval, 1_500.0, 96.0) == pytest.approx(at)


def test_tomorrow_never_lengthens_an_interval():
    assert next_time(1_000.0, 600.0, 1_500.0, 960.0) <= 1_600.0


loads_of_any_kind = st.lists(
    st.builds(
        lambda key, fast, extra, units, active, busy: Load(key, fast, fast + extra, units, active, busy),
        st.integers(1, 10_000),
        st.floats(1, 3_600),
        st.floats(0, 3_600),
        st.integers(1, 100),
        st.booleans(),
        st.floats(0, 1),
    ),
    max_size=30,
)


@given(
    loads_of_any_kind, st.integers(0, 20_000), st.integers(1, 20_000), st.integers(0, 5_000), st.floats(1, DAY + 3600)
)
def test_no_plan_needs_more_than_there_is(loads, used, limit, buffer, seconds):
    left = UnitBudget(limit, used, buffer, seconds)
    plan = make_plan(loads, left)
    assert plan.demand(loads, seconds) <= left.left * (1 + 1e-6)
    for load in loads:
        assert plan.interval(load) >= load.fast
        if load.is_active and not plan.all_idle:
            assert plan.interval(load) <= plan.interval(replace(load, is_active=False))


# --- a whole day, step by step: what the plan says against what is used


def walk_day(
    count: int,
    *,
    units: int = 1,
    limit: int = 10_000,
    buffer: int = 1_000,
    seconds: float = DAY,
    used: int = 0,
    news: dict[int, list[float]] | None = None,
) -> tuple[int, float, dict[int, float], list[float]]:
    """Units used, the last read, the longest wait of each list, and the waits that were longer than promised."""
    rng, news = random.Random(1), {key: sorted(times) for key, times in (news or {}).items()}
    due = [(rng.uniform(0, 60), key) for key in range(count)]
    heapq.heapify(due)
    seen, promised, longest, late = {}, {}, {}, []
    last_new = dict.fromkeys(range(count), -1e9)
    now = 0.0
    while due[0][0] < seconds:
        now, key = heapq.heappop(due)
        used += units
        assert used <= limit, f"{used} units at {now}"
        if key in seen:
            longest[key] = max(longest.get(key, 0.0), now - seen[key])
            late += [now - seen[key]] if now - seen[key] > promised[key] + 1e-6 else []
        seen[key] = now
        if any(moment <= now for moment in news.get(key, ())):
            last_new[key], news[key] = now, [moment for moment in news[key] if moment > now]
        loads = [
            Load(k, 30, 300, units, SPEEDS.is_active(last_new[k], now), SPEEDS.busy(last_new[k], now, seconds - now))
            for k in range(count)
        ]
        plan, tomorrow = make_plan(loads, UnitBudget(limit, used, buffer, seconds - now)), Plan(96.0)
        promised[key] = plan.interval(loads[key])
        at = next_time(now, promised[key], seconds, tomorrow.interval(loads[key]))
        most = rng.uniform(0, cadence.SLIGHTLY)
        early = cadence.after_success(now, at - now, cadence.phase(key), most=most) if at <= seconds else at
        heapq.heappush(due, (early, key))
    return used, now, longest, late


@pytest.mark.parametrize(
    ("count", "units", "limit", "interval"),
    [(3, 1, 10_000, 30), (10, 1, 2_000, 492), (30, 1, 2_000, 1477), (100, 1, 2_000, 4923), (3, 5, 10_000, 148)],
)
def test_a_day_is_never_overdrawn_never_stops_and_keeps_its_promise(count, units, limit, interval):
    used, last, longest, late = walk_day(count, units=units, limit=limit, buffer=limit // 10)
    assert used <= limit * 9 // 10
    assert DAY - last < interval
    assert late == []
    assert max(longest.values()) <= interval * 1.1


@pytest.mark.parametrize("seed", range(4))
def test_a_day_without_a_buffer_and_with_news_is_not_overdrawn(seed):
    rng = random.Random(seed)
    news = {key: [rng.uniform(0, DAY) for _ in range(8)] for key in range(20)}
    used, last, longest, late = walk_day(20, limit=2_000, buffer=0, news=news)
    assert 1_900 < used <= 2_000
    assert DAY - last < max(longest.values())
    assert late == []


def test_a_budget_that_was_spent_at_noon_lasts_until_midnight():
    used, last, longest, _ = walk_day(10, seconds=43_200.0, used=9_200)
    assert used <= 10_000
    assert 43_200 - last < 600
    assert max(longest.values()) < 3_600


def test_reads_that_come_early_are_part_of_the_sum():
    plan = make_plan(lists(10), budget())
    assert plan.rate(lists(10)) * DAY == pytest.approx(9_000, rel=1e-6)
    assert plan.interval(lists(1)[0]) == pytest.approx(96 / EARLY, rel=1e-6)
