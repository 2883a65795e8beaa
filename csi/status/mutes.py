"""Whether operators are notified of a problem now, or whether it is muted: by command, or by a maintenance window."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from csi.config.settings import WEEKDAYS, MaintenanceWindow, NotifySettings
from csi.runtime import Runtime
from csi.store import mutes
from csi.store.mutes import Mute


@dataclass(frozen=True)
class ActiveMutes:
    """What mutes notifications at one moment. `window_until` None: no maintenance window is open."""

    mutes: tuple[Mute, ...] = ()
    window_until: float | None = None

    @property
    def mutes_all(self) -> bool:
        return self.window_until is not None or any(mute.problem is None for mute in self.mutes)

    def covers(self, problem: str) -> bool:
        return self.mutes_all or any(mute.problem == problem for mute in self.mutes)


def active_mutes(rt: Runtime) -> ActiveMutes:
    now = rt.now()
    return ActiveMutes(tuple(mutes.active(now)), window_end(rt.settings.notify, now))


def window_end(settings: NotifySettings, now: float) -> float | None:
    """When the maintenance window that is open now ends, the last one of several. None: none is open; pure."""
    open_until = [
        end
        for window in settings.windows
        for start, end in _occurrences(window, window.timezone or settings.timezone, now)
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
