"""How long until a watch is read again, before the budget is asked (FR-1.3, decision 0042, 15, 42)."""

import random
from collections import Counter

import pytest

from csi.scheduling import cadence
from csi.scheduling.cadence import Speeds, speeds

NOW = 1_771_761_600.0


@pytest.mark.parametrize(
    ("base", "active", "idle", "expected"),
    [
        (30, None, 300, (30, 300)),
        (30, 10, 300, (10, 300)),
        (30, None, 10, (30, 30)),  # idle is never faster than active
    ],
)
def test_two_speeds(base, active, idle, expected):
    found = speeds(base, active=active, idle=idle, threshold=900)
    assert (found.fast, found.slow) == expected


@pytest.mark.parametrize(("quiet_for", "active"), [(0, True), (900, True), (901, False), (-5, True)])
def test_active_until_the_threshold_without_news(quiet_for, active):
    assert Speeds(30, 300, 900).is_active(NOW - quiet_for, NOW) is active


def test_one_speed_is_neither_active_nor_busy():
    assert not Speeds(60, 60, 900).is_active(NOW, NOW)
    assert Speeds(60, 60, 900).busy(NOW, NOW, 3600, usual=1.0) == 0


@pytest.mark.parametrize(
    ("quiet_for", "seconds", "usual", "share"),
    [
        (0, 9000, 0.0, 0.1),  # 15 minutes of the next 150
        (600, 3000, 0.0, 0.1),
        (5000, 9000, 0.25, 0.25),  # idle now, but usually active a quarter of the day
        (0, 100, 0.0, 1.0),
        (0, 0, 0.5, 0.5),
    ],
)
def test_how_busy_a_watch_will_be(quiet_for, seconds, usual, share):
    assert Speeds(30, 300, 900).busy(NOW - quiet_for, NOW, seconds, usual=usual) == pytest.approx(share)


@pytest.mark.parametrize("seconds", [1, 30, 300])
@pytest.mark.parametrize(("most", "polls"), [(cadence.SLIGHTLY, 80), (cadence.CLEARLY, 6)])
def test_watches_that_were_polled_together_are_spread_after_a_few_polls_and_stay_so(seconds, most, polls):
    count = 200
    at = dict.fromkeys(range(1, count + 1), NOW)
    for number in range(polls + 3):
        for watch_id, now in at.items():
            late = (watch_id % 7) * 0.0001 * seconds  # a poll is never exactly on time
            at[watch_id] = cadence.after_success(now + late, seconds, cadence.phase(watch_id), most=most)
            assert (1 - most) * seconds - 1e-6 <= at[watch_id] - now - late <= seconds + 1e-6
            if number > polls:
                assert at[watch_id] - now == pytest.approx(seconds, abs=seconds * 0.002)
    twentieths = Counter(int(due % seconds / seconds * 20) for due in at.values())
    assert len(twentieths) == 20
    assert max(twentieths.values()) <= 2 * count / 20


def test_a_poll_a_little_before_its_phase_is_not_repeated():
    due = cadence.after_success(NOW, 300, 0.4, most=1.0)
    assert cadence.after_success(due - 2, 300, 0.4, most=1.0) == pytest.approx(due + 298)


@pytest.mark.parametrize(
    ("interval", "fresh_for", "earliest", "latest"),
    [
        (300, 880, 880.5, 883),  # just after the caches let go
        (300, 100, 100.5, 103),  # sooner than the interval: the copy that was read is old
        (300, 1, 60, 60),  # but not hammering
        (1, 0.1, 1, 3.1),
        (300, 1e9, 3600, 3600),  # "expires in ten years" is read all the same
        (7200, 1e9, 7200, 7200),
    ],
)
def test_a_cache_is_waited_for_within_reason(interval, fresh_for, earliest, latest):
    at = cadence.after_expiry(NOW, interval, NOW + fresh_for, random.Random(1))
    assert earliest <= at - NOW <= latest + 1e-3
