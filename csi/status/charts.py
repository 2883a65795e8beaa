"""Figures over time for the dashboard's charts."""

from dataclasses import dataclass

from csi.pipeline.quota_schedule import Forecast
from csi.store import api_units, counters
from csi.store.queries import charts

HOUR = 3_600.0


@dataclass(frozen=True)
class FlowChart:
    """Events per interval, the oldest first; the last interval is not over yet."""

    starts: float
    step: int
    seen: tuple[int, ...]
    arrived: tuple[int, ...]
    died: tuple[int, ...]


@dataclass(frozen=True)
class QuotaBurn:
    """The API units of this Pacific day: how many were left at the end of each of its hours so far."""

    forecast: Forecast
    now: float
    starts_at: float
    left: tuple[int, ...]


def flow_chart(now: float, seconds: float, step: int) -> FlowChart:
    """The intervals that end with the current one."""
    last, count = int(now // step), int(seconds // step)
    places = range(last - count + 1, last + 1)
    found = charts.flow(places[0] * step, step)
    return FlowChart(
        starts=float(places[0] * step),
        step=step,
        seen=tuple(found.seen.get(place, 0) for place in places),
        arrived=tuple(found.arrived.get(place, 0) for place in places),
        died=tuple(found.died.get(place, 0) for place in places),
    )


def quota_burn(forecast: Forecast, now: float) -> QuotaBurn:
    by_hour = {label: value for (_, label), value in counters.all_of(api_units.HOURLY).items()}
    start = api_units.day_starts(now)
    hours = range(int(start // HOUR), int(now // HOUR) + 1)
    # Counted backwards from the ledger's current value: the API may have corrected it.
    later = [int(by_hour.get(str(hour), 0)) for hour in hours]
    left = [forecast.left + sum(later[place + 1 :]) for place in range(len(later))]
    return QuotaBurn(forecast, now, start, tuple(min(units, forecast.limit) for units in left))
