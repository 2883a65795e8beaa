"""How much less often sources are read while many events wait for their receivers. Pure."""

from dataclasses import dataclass

SLOW_FROM = 0.5
"""The share of the limit from which sources are read less often."""
MOST = 8.0
"""How much longer intervals are just below the limit."""


@dataclass(frozen=True)
class Pressure:
    """Items and events that wait, counted up to the limit, and what follows for reading."""

    waiting: int
    limit: int
    factor: float | None
    """Intervals are so many times longer. None: nothing is read."""

    @property
    def is_felt(self) -> bool:
        return self.factor != 1.0


def slowdown(waiting: int, limit: int) -> float | None:
    """The factor of all intervals. None: the limit is reached, and nothing is read. `limit` 0: there is no limit."""
    if not limit:
        return 1.0
    share = waiting / limit
    if share >= 1.0:
        return None
    return 1.0 + (MOST - 1.0) * max(share - SLOW_FROM, 0.0) / (1.0 - SLOW_FROM)
