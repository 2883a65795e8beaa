"""When a window of the week that is open now ends: maintenance windows and quiet hours. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from csi.config.setting_types import WEEKDAYS, MaintenanceWindow


def windows_end(windows: Iterable[MaintenanceWindow], timezone: str, now: float) -> float | None:
    """When the window that is open now ends, the last one of several. None: none is open."""
    open_until = [
        end
        for window in windows
        for start, end in _occurrences(window, window.timezone or timezone, now)
        if start <= now < end
    ]
    return max(open_until, default=None)


def _occurrences(window: MaintenanceWindow, zone: str, now: float) -> Sequence[tuple[float, float]]:
    """Start and end of the window that begins today, and of the one that began yesterday and may last over midnight."""
    today = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(zone)).date()
    first, last = window.times()
    found = []
    for day in (today - timedelta(days=1), today):
        if WEEKDAYS[day.weekday()] in window.days:
            midnight = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))
            # Wall-clock arithmetic: on the day of a clock change the window still starts and ends at these times.
            start, end = (midnight + timedelta(minutes=minutes) for minutes in (first, last))
            found.append((start.timestamp(), (end if last > first else end + timedelta(days=1)).timestamp()))
    return found
