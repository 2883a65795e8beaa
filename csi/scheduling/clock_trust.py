"""Whether the wall clock is trusted: its advance is compared with a clock that is never set. Pure (decision 0041)."""

from dataclasses import dataclass

TOLERANCE_SECONDS = 300.0
"""More than the slewing of an NTP client adds up to between two looks, less than any jump that does harm."""

LONGEST_HOLD_SECONDS = 900.0
"""A machine without a battery clock gets the right time by one large step after boot: the step is right, and lasts."""


@dataclass(frozen=True)
class ClockReading:
    """Both clocks, read at one moment."""

    wall: float
    steady: float

    @property
    def offset(self) -> float:
        """It changes only when the wall clock is set."""
        return self.wall - self.steady


@dataclass(frozen=True)
class ClockTrust:
    """The offset that is trusted, and the hold that lasts while another offset is measured."""

    offset: float
    held_since: float | None = None
    """By the steady clock. None: the clocks agree."""
    jump: float = 0.0
    """Seconds by which the wall clock differs from what the steady clock says."""

    @property
    def is_held(self) -> bool:
        return self.held_since is not None


def check(trust: ClockTrust, reading: ClockReading) -> ClockTrust:
    """The trust after one more reading. A hold ends when the wall clock returns, or with the longest hold: then the new
    time is trusted."""
    jump = reading.offset - trust.offset
    if abs(jump) <= TOLERANCE_SECONDS:
        return ClockTrust(reading.offset)
    since = reading.steady if trust.held_since is None else trust.held_since
    if reading.steady - since >= LONGEST_HOLD_SECONDS:
        return ClockTrust(reading.offset)
    return ClockTrust(trust.offset, since, jump)
