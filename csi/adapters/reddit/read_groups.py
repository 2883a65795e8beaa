"""Which watches are read together in one request, so that no window overflows between two reads. Pure.

A request lists the newest `window` items of its whole group. Busy members push quiet ones out of it, so members are
divided by their measured rate: the expected items of one group between two of its reads stay below half of the window.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

USUAL_RATE = 500 / 86_400
"""Items a second of a member that was not measured yet."""
LEAST_RATE = 2.0**-10
"""84 items a day: quieter members count as this one, since few items say little of a rate."""
LARGEST_GROUP = 50
JITTER = 1.04
"""Two requests are up to this much further apart than the spacing."""
SAFE = 0.5
"""Share of the window that the expected items of a group may fill between two reads."""
REACH = 1800.0
"""Wanted where slots are free: a window reaches back this far. Posts that a moderator approves appear at their old
time; where that is older than the window, no read of the group lists them."""


@dataclass(frozen=True)
class GroupPlan:
    """The groups, and how often each is read."""

    groups: tuple[tuple[str, ...], ...]
    seconds: float
    filled: float
    """Share of the window that the busiest group is expected to fill between two reads. Above 1, items are missed."""

    @property
    def is_safe(self) -> bool:
        return self.filled <= SAFE

    def group_of(self, member: str) -> tuple[str, ...]:
        return next((group for group in self.groups if member in group), (member,))


def plan(rates: Mapping[str, float], interval: float, spacing: float, window: int) -> GroupPlan:
    """The fewest groups whose windows reach far back, as many as the interval has slots for, or as many as are needed.
    Where no number of groups fits, the one that overflows least."""
    steady = tuple(sorted((member, 2.0 ** level(rate)) for member, rate in rates.items()))
    return _plan(steady, interval, spacing, window)


@lru_cache(maxsize=64)
def _plan(rates: tuple[tuple[str, float], ...], interval: float, spacing: float, window: int) -> GroupPlan:
    """Every read asks for the plan, and the steady rates hardly change."""
    steady = dict(rates)
    order = sorted(steady, key=lambda member: (-steady[member], member))
    if not order:
        return GroupPlan((), interval, 0.0)
    fewest = math.ceil(len(order) / LARGEST_GROUP)
    slots = round(interval / spacing) if spacing > 0 else len(order)
    plans = [_packed(order, steady, count, interval, spacing, window) for count in range(fewest, len(order) + 1)]
    free = [one for one in plans if len(one.groups) <= max(slots, fewest)]
    deep = next((one for one in free if one.filled * REACH <= one.seconds), min(free, key=lambda one: one.filled))
    if deep.is_safe:
        return deep
    if found := next((one for one in plans if one.is_safe), None):
        return found
    return min(plans, key=lambda one: one.filled)


def level(rate: float, before: int | None = None) -> int:
    """The rate as a power of two. It stays what it was `before` while the rate is within a factor of two of that: a
    member that changes its group between two reads costs the slot that was reserved for the other group."""
    exact = math.log2(max(rate, LEAST_RATE))
    return before if before is not None and abs(exact - before) <= 1.0 else round(exact)


def _packed(
    order: list[str], rates: Mapping[str, float], count: int, interval: float, spacing: float, window: int
) -> GroupPlan:
    """The busiest first, each into the group that has the least so far."""
    groups: list[list[str]] = [[] for _ in range(count)]
    loads, open_groups = [0.0] * count, [(0.0, place) for place in range(count)]
    for member in order:
        load, place = heapq.heappop(open_groups)
        groups[place].append(member)
        loads[place] = load + rates[member]
        if len(groups[place]) < LARGEST_GROUP:
            heapq.heappush(open_groups, (loads[place], place))
    seconds = max(interval, count * spacing * JITTER)
    return GroupPlan(tuple(tuple(sorted(group)) for group in groups), seconds, max(loads) * seconds / window)
