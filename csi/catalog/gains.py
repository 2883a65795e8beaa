"""What was gained since a count before: over the time that passed, and nothing where nothing was counted. Pure."""

from dataclasses import dataclass

from csi.store.catalog.stats import CountSample

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class BaselineWindow:
    """Which earlier count a gain is measured against: nearly a whole period old, so that nothing is extrapolated
    from minutes to a day, and not so old that an average would say nothing about the period."""

    period: float
    oldest: float

    def bounds(self, now: float) -> tuple[float, float]:
        """The earliest and the latest time of a count that can be the baseline; the latest such count is."""
        return now - self.oldest, now - 0.9 * self.period


HOURLY = BaselineWindow(HOUR, DAY)
DAILY = BaselineWindow(DAY, 8 * DAY)
"""Eight days: what is counted once a week has a gain, too, the average of its days."""


def gain(value: int | None, now: float, before: CountSample | None, window: BaselineWindow) -> int | None:
    """None without a baseline, or where one of the two counts is hidden. May be negative: YouTube takes views back."""
    if value is None or before is None or before.value is None or before.at >= now:
        return None
    return round((value - before.value) * window.period / (now - before.at))
