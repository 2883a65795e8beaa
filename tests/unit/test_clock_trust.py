"""When the wall clock is trusted: the rule alone."""

import pytest

from csi import clock
from csi.pipeline import clock_check
from csi.scheduling.clock_trust import LONGEST_HOLD_SECONDS, TOLERANCE_SECONDS, ClockReading, ClockTrust, check
from csi.store.heartbeats import LastHeartbeat

DAY = 86_400.0
WALL = 1_771_761_600.0
TRUST = ClockTrust(WALL)


def reading(seconds: float, jump: float = 0.0) -> ClockReading:
    """So long after the boot of the machine, with the wall clock off by `jump`."""
    return ClockReading(WALL + seconds + jump, seconds)


def test_time_that_passes_is_no_jump():
    assert check(TRUST, reading(5)) == TRUST
    assert check(TRUST, reading(91 * DAY)) == TRUST, "suspended, or not looked at: both clocks moved"


@pytest.mark.parametrize("jump", [TOLERANCE_SECONDS, -TOLERANCE_SECONDS])
def test_a_small_step_is_trusted_at_once(jump):
    assert check(TRUST, reading(5, jump)) == ClockTrust(WALL + jump)


@pytest.mark.parametrize("jump", [91 * DAY, TOLERANCE_SECONDS + 1, -DAY])
def test_a_jump_is_held_from_its_first_reading(jump):
    held = check(TRUST, reading(100, jump))
    assert held == ClockTrust(WALL, held_since=100, jump=jump)
    assert check(held, reading(200, jump)) == held


def test_a_second_jump_does_not_make_the_hold_longer():
    held = check(check(TRUST, reading(100, DAY)), reading(900, 3 * DAY))
    assert held == ClockTrust(WALL, held_since=100, jump=3 * DAY)
    assert not check(held, reading(100 + LONGEST_HOLD_SECONDS, 3 * DAY)).is_held


def test_a_clock_that_returns_ends_the_hold():
    held = check(TRUST, reading(100, 91 * DAY))
    assert check(held, reading(160, 2.0)) == ClockTrust(WALL + 2.0)


def test_a_clock_that_stays_is_accepted_after_the_longest_hold():
    held = check(TRUST, reading(100, 91 * DAY))
    assert check(held, reading(99 + LONGEST_HOLD_SECONDS, 91 * DAY)).is_held
    assert check(held, reading(100 + LONGEST_HOLD_SECONDS, 91 * DAY)) == ClockTrust(WALL + 91 * DAY)


def test_the_steady_clock_moves_forward_and_has_a_boot():
    first = clock.steady()
    assert clock.steady() >= first > 0
    assert clock.boot_id() == clock.boot_id()


@pytest.mark.parametrize(
    ("jump", "words"),
    [(91 * DAY, "+91.0 d"), (-3 * 3600, "-3.0 h"), (600, "+10 min")],
    ids=["days", "hours", "minutes"],
)
def test_the_text_of_a_hold_names_the_jump_and_its_longest_time(jump, words):
    stored = f'{{"boot_id": "b", "offset": 0.0, "held_since": 5.0, "jump": {jump}}}'
    text = clock_check.hold_text(LastHeartbeat(WALL, WALL, clock_json=stored), WALL + 10)
    assert text is not None
    assert f"jumped by {words};" in text
    assert "15 minutes at most" in text
    assert clock_check.hold_text(LastHeartbeat(WALL, WALL, clock_json=stored), WALL + 3600) is None, (
        "the worker has ended"
    )
    assert clock_check.hold_text(LastHeartbeat(WALL, WALL), WALL) is None
