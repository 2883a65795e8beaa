"""The interval until a watch is polled again, before the unit budget is considered. Pure."""

import random
from dataclasses import dataclass

GOLDEN = 0.6180339887498949
SLIGHTLY, CLEARLY = 0.05, 0.25
"""How much of its interval earlier a poll may come to reach its phase: while API units are scarce, and otherwise."""

ON_TIME = 0.01
SOONEST = 60.0
LATEST = 3600.0
"""The longest wait for a cache to expire: a feed whose headers say "ten years" is polled all the same."""


@dataclass(frozen=True)
class Speeds:
    """FR-1.3's two intervals of one watch, and when it falls from the fast to the slow one."""

    fast: float
    slow: float
    threshold: float = 0.0

    def is_active(self, last_activity: float, now: float) -> bool:
        """Whether something new was found within the threshold. False for a watch with a single interval."""
        return self.fast < self.slow and now - last_activity <= self.threshold

    def busy(self, last_activity: float, now: float, seconds: float, *, usual: float = 0.0) -> float:
        """The share of the next seconds in which it is expected to be active: what is usual for it, or what is
        left of its activity now."""
        if self.fast >= self.slow:
            return 0.0
        rest = max(last_activity + self.threshold - now, 0.0)
        return min(max(usual, rest / seconds if seconds > 0 else 0.0), 1.0)


def speeds(base: float, *, active: float | None, idle: float, threshold: float) -> Speeds:
    """Idle is never faster than active."""
    fast = base if active is None else active
    return Speeds(fast, max(fast, idle), threshold)


def phase(watch_id: int) -> float:
    """Where in its interval this watch is polled, from 0 to 1. Multiples of the golden ratio lie as far apart as
    possible: any number of watches with ids in a row is spread evenly."""
    return watch_id * GOLDEN % 1.0


def after_success(now: float, seconds: float, phase: float, *, most: float) -> float:
    """After the interval, or earlier by up to `most` of it: by as much as leads the watch to its phase, where it stays.

    Watches that were added together, or that were all due after a restart or an outage, are spread again after a few
    polls, so that the events of one do not wait behind those of all others.
    """
    beyond = (now - phase * seconds) % seconds
    if seconds - beyond < ON_TIME * seconds:  # a little before its phase
        beyond = 0.0
    # A part of a long way, not `most` of the interval: watches in step would move on together.
    return now + seconds - (beyond if beyond <= most * seconds else most * beyond)


def after_expiry(now: float, seconds: float, fresh_until: float, rng: random.Random) -> float:
    """Just after the cached response expires, before which the response is the same; between SOONEST and LATEST."""
    soonest, latest = now + min(seconds, SOONEST), now + max(seconds, LATEST)
    return min(max(fresh_until + rng.uniform(0.5, 3.0), soonest), latest)
