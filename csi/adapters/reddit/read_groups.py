"""Which watches are read together in one request, so that no window overflows between two reads. Pure.

A request lists the newest `window` items of its whole group. Busy members push quiet ones out of it, so members are
divided by their measured rate: the expected items of one group between two of its reads stay below half of the window.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

USUAL_RATE = 500 / 86_400
"""Items a second of a member that was not measured yet."""
LARGEST_GROUP = 50
COMFORTABLE, SAFE = 0.25, 0.5
"""Shares of the window that the expected items of a group fill: wanted where slots are free, and required."""


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
    """The fewest groups that fit: first those that the interval has slots for, then as many as are needed. Where no
    number of groups fits, the one that overflows least."""
    # Rates are rounded to powers of two: a group should not change with every read.
    steady = {member: 2.0 ** round(math.log2(max(rate, 1e-7))) for member, rate in rates.items()}
    order = sorted(steady, key=lambda member: (-steady[member], member))
    if not order:
        return GroupPlan((), interval, 0.0)
    fewest = math.ceil(len(order) / LARGEST_GROUP)
    slots = round(interval / spacing) if spacing > 0 else len(order)
    plans = [_packed(order, steady, count, interval, spacing, window) for count in range(fewest, len(order) + 1)]
    free = [one for one in plans if len(one.groups) <= max(slots, fewest)]
    for candidates, share in ((free, COMFORTABLE), (plans, SAFE)):
        if found := next((one for one in candidates if one.filled <= share), None):
            return found
    return min(plans, key=lambda one: one.filled)


def _packed(
    order: list[str], rates: Mapping[str, float], count: int, interval: float, spacing: float, window: int
) -> GroupPlan:
    """The busiest first, each into the group that has the least so far."""
    groups: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for member in order:
        place = min((n for n in range(count) if len(groups[n]) < LARGEST_GROUP), key=lambda n: (loads[n], n))
        groups[place].append(member)
        loads[place] += rates[member]
    seconds = max(interval, count * spacing)
    return GroupPlan(tuple(tuple(sorted(group)) for group in groups), seconds, max(loads) * seconds / window)
