"""How long until a watch is read again. Pure."""

import random
from dataclasses import dataclass

DAY = 86_400.0
FAILURE_CAP = 60.0
"""The longest wait of a failing watch: everything moves again within 90 s of a fault's end (DECISIONS 48)."""

FIRST_RETRY = 5.0


@dataclass(frozen=True)
class Adaptive:
    """FR-1.3's two speeds and the budget they share."""

    active: float
    idle: float
    threshold: float
    watches: int
    units_limit: int
    units_left: int
    buffer: int


def interval(base: float, adaptive: Adaptive | None, *, last_activity: float, now: float) -> float:
    """Seconds between two reads of a healthy watch.

    Idle slow-down exists to save quota: where the whole day at the fast interval fits, nothing is slowed down
    (DECISIONS 14).
    """
    if adaptive is None:
        return base
    slow = max(adaptive.active, adaptive.idle)
    if adaptive.units_left < adaptive.buffer:
        return slow
    if adaptive.watches * DAY / adaptive.active <= adaptive.units_limit - adaptive.buffer:
        return adaptive.active
    return adaptive.active if now - last_activity <= adaptive.threshold else slow


def after_success(now: float, seconds: float, rng: random.Random) -> float:
    """Spread a little, so that watches that were added together do not stay together."""
    return now + seconds * (rng.uniform(0.95, 1.0) if seconds >= 10 else 1.0)


def after_failure(
    now: float, seconds: float, errors: int, rng: random.Random, retry_after: float | None = None
) -> float:
    """Back off, at most a minute. A source that names a time is given that time, up to an hour."""
    if retry_after is not None:
        return now + min(max(retry_after, 1.0), 3600.0)
    wait = min(min(seconds, FIRST_RETRY) * 2.0 ** min(errors - 1, 16), FAILURE_CAP)
    return now + wait * rng.uniform(0.8, 1.0)
