"""When a window of the week that is open now ends: maintenance windows and quiet hours. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from csi.config.setting_types import WEEKDAYS, MaintenanceWindow


def windows_end(windows: Iterable[MaintenanceWindow], timezone: str, now: float) -> float | None:
    """When the window that is open now ends, the last one of several. None: none is open."""
    open_until = []
    for window in windows:
        zone = ZoneInfo(window.timezone or timezone)
        today = datetime.fromtimestamp(now, UTC).astimezone(zone).date()
        first, last = window.times()
        # The window that begins today, and the one that began yesterday and may last over midnight
        for day in (today - timedelta(days=1), today):
            if WEEKDAYS[day.weekday()] not in window.days:
                continue
            midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
            # Wall-clock arithmetic: on the day of a clock change the window still starts and ends at these times.
            start, end = (midnight + timedelta(minutes=minutes) for minutes in (first, last))
            end = end if last > first else end + timedelta(days=1)
            if start.timestamp() <= now < end.timestamp():
                open_until.append(end.timestamp())
    return max(open_until, default=None)
