"""How long until a watch is read again (FR-1.3, DECISIONS 14, 42, 48)."""

import random

import pytest

from csi.scheduling import cadence
from csi.scheduling.cadence import Adaptive

NOW = 1_771_761_600.0


def adaptive(**changes: float) -> Adaptive:
    values = {"active": 30, "idle": 300, "threshold": 900, "watches": 10, "units_limit": 10_000, "units_left": 9_000}
    return Adaptive(**(values | {"buffer": 1_000} | changes))


@pytest.mark.parametrize(
    ("rule", "quiet_for", "seconds"),
    [
        (None, 99_999, 30),
        (adaptive(), 60, 30),
        (adaptive(), 901, 300),
        (adaptive(units_left=999), 60, 300),
        (adaptive(watches=3), 99_999, 30),  # three lists at 30 s fit into the day: nothing to save
        (adaptive(watches=4), 99_999, 300),
        (adaptive(idle=10), 901, 30),  # idle is never faster than active
    ],
)
def test_interval(rule, quiet_for, seconds):
    assert cadence.interval(30, rule, last_activity=NOW - quiet_for, now=NOW) == seconds


def test_failures_back_off_to_a_minute_and_no_further():
    rng = random.Random(1)
    waits = [cadence.after_failure(NOW, 300, errors, rng) - NOW for errors in (1, 2, 3, 5, 50, 5000)]
    assert waits == sorted(waits[:4]) + waits[4:]
    assert waits[0] <= 5
    assert max(waits) <= 60


def test_a_source_that_names_a_time_is_given_it():
    rng = random.Random(1)
    assert cadence.after_failure(NOW, 300, 1, rng, retry_after=120) == NOW + 120
    assert cadence.after_failure(NOW, 300, 1, rng, retry_after=1e9) == NOW + 3600


def test_short_intervals_are_exact_and_long_ones_spread():
    rng = random.Random(1)
    assert cadence.after_success(NOW, 1, rng) == NOW + 1
    assert {285 <= cadence.after_success(NOW, 300, rng) - NOW <= 300 for _ in range(50)} == {True}
