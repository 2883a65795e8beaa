"""How often each watch can be read so that the day's API units last until midnight. Pure (decision 0042, 14, 42).

Two things are decided, in this order, and everything follows from them:
1. `pace`: idle watches run at one common interval between their fast and their slow one, the shortest that fits while
   the active ones keep their fast interval. Where everything fits at the fast interval, nothing is slowed down.
2. `stretch`: where even the slow interval of the idle ones does not fit, all intervals grow by one common factor, so
   that an active watch stays faster than an idle one and nothing stops before midnight.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

DAY = 86_400.0
STEPS = 50
TRICKLE = 0.5
"""How much of the buffer may be used for reading once only the buffer is left: reading never stops."""

EARLY = 0.975
"""Reads come up to 5 % of their interval early, so that they spread (csi.pipeline.quota_schedule): this on average."""


@dataclass(frozen=True)
class Load:
    """A watch that costs units. One that has a single speed has `fast == slow`."""

    key: int
    fast: float
    slow: float
    units: int = 1
    """What one read costs: the pages of its last walk."""
    is_active: bool = False
    busy: float = 0.0
    """The share of the time, 0 to 1, in which it is expected to be active."""


@dataclass(frozen=True)
class UnitBudget:
    """The API units of a day, and the time that is left of it."""

    limit: int
    used: int
    buffer: int
    seconds: float
    """Until Pacific midnight."""

    @property
    def left(self) -> int:
        return max(self.limit - self.used, 0)

    @property
    def is_low(self) -> bool:
        """FR-1.3: less than the buffer is left, so everything is idle."""
        return self.left < self.buffer

    @property
    def available(self) -> float:
        """Units for reading until midnight; above the buffer, or half of what is left once that is touched."""
        if self.is_low:
            return self.left * TRICKLE
        return max(float(self.left - self.buffer), self.buffer * TRICKLE * min(self.seconds / DAY, 1.0))


@dataclass(frozen=True)
class Plan:
    """The intervals that fit. `stretch` is infinite when nothing is left: then midnight is the next chance."""

    pace: float
    stretch: float = 1.0
    all_idle: bool = False

    def interval(self, load: Load) -> float:
        """Seconds between two reads of this watch."""
        if load.is_active and not self.all_idle:
            return load.fast * self.stretch
        return _clamp(self.pace, load.fast, load.slow) * self.stretch

    def demand(self, loads: Iterable[Load], seconds: float) -> float:
        """Units that these watches will use in this time if they are read by this plan."""
        return sum(count * _demand(load, self, seconds) for load, count in _kinds(loads).items())

    def rate(self, loads: Iterable[Load]) -> float:
        """Units a second at this moment."""
        return sum(load.units / (self.interval(load) * EARLY) for load in loads)


def make_plan(loads: Iterable[Load], budget: UnitBudget) -> Plan:
    """The shortest intervals with which the units last."""
    kinds = _kinds(loads)
    if not kinds:
        return Plan(0.0)
    # Reserve one read of every watch where the buffer is smaller: reads that were scheduled at the old pace, before a
    # watch became active, still happen.
    one_round = sum(load.units * count for load, count in kinds.items())
    budget = replace(budget, buffer=max(budget.buffer, min(one_round, budget.limit // 20)))
    slowest = Plan(max(load.slow for load in kinds), all_idle=budget.is_low)
    needed = _sum(kinds, slowest, budget.seconds)
    if needed > budget.available:
        return replace(slowest, stretch=needed / budget.available if budget.available > 0 else math.inf)
    if budget.is_low:
        return slowest
    # By bisection: a longer pace never uses more units.
    low, high = min(load.fast for load in kinds), max(load.slow for load in kinds)
    if _sum(kinds, Plan(low), budget.seconds) <= budget.available:
        return Plan(low)
    for _ in range(STEPS):
        middle = (low + high) / 2
        fits = _sum(kinds, Plan(middle), budget.seconds) <= budget.available
        low, high = (low, middle) if fits else (middle, high)
    return Plan(high)


def next_time(now: float, interval: float, midnight: float, tomorrow: float) -> float:
    """When to read again. The part of an interval that is left at midnight is scaled to tomorrow's interval: a slow
    pace does not continue into the new day, and watches that were spread stay spread."""
    if now + interval <= midnight:
        return now + interval
    rest = 1.0 - (midnight - now) / interval
    return midnight + rest * min(tomorrow, interval)


def _kinds(loads: Iterable[Load]) -> Counter[Load]:
    """Equal watches, counted, so that the plan is computed for a few kinds and not for hundreds of playlists."""
    return Counter(replace(load, key=0, busy=math.ceil(load.busy * 500) / 500) for load in loads)


def _sum(kinds: Counter[Load], plan: Plan, seconds: float) -> float:
    return sum(count * _demand(load, plan, seconds) for load, count in kinds.items())


def _demand(load: Load, plan: Plan, seconds: float) -> float:
    busy = 0.0 if plan.all_idle else load.busy
    idle_pace = _clamp(plan.pace, load.fast, load.slow)
    return load.units * seconds * (busy / load.fast + (1.0 - busy) / idle_pace) / (plan.stretch * EARLY)


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
