"""The gain of a count per hour or day, compared with an earlier count. Pure."""

from dataclasses import dataclass

from csi.store.catalog.stats import CountSample

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class BaselineWindow:
    """The allowed age of the earlier count: at least 0.9 periods, so that minutes are not extrapolated to a day, and at
    most `oldest`, so that the average still describes the period."""

    period: float
    oldest: float

    def bounds(self, now: float) -> tuple[float, float]:
        """The earliest and latest time of a count that can be the baseline. The newest count between them is used."""
        return now - self.oldest, now - 0.9 * self.period


HOURLY = BaselineWindow(HOUR, DAY)
DAILY = BaselineWindow(DAY, 8 * DAY)
"""Eight days, so that a video that is counted once a week also has a daily gain, the average of its week."""


def gain(value: int | None, now: float, before: CountSample | None, window: BaselineWindow) -> int | None:
    """None without a baseline or when one count is hidden. Can be negative: YouTube corrects view counts."""
    if value is None or before is None or before.value is None or before.at >= now:
        return None
    return round((value - before.value) * window.period / (now - before.at))
