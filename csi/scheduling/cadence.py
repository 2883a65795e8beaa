"""The interval until a watch is polled again, before the unit budget is considered. Pure."""

import random
from dataclasses import dataclass

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


def after_success(now: float, seconds: float, rng: random.Random) -> float:
    """After the interval, up to 5 % early: this spreads watches that were added together."""
    return now + seconds * (rng.uniform(0.95, 1.0) if seconds >= 10 else 1.0)


def after_expiry(now: float, seconds: float, fresh_until: float, rng: random.Random) -> float:
    """Just after the cached response expires, before which the response is the same; between SOONEST and LATEST."""
    soonest, latest = now + min(seconds, SOONEST), now + max(seconds, LATEST)
    return min(max(fresh_until + rng.uniform(0.5, 3.0), soonest), latest)
