"""Whether operators are notified of a problem now, or whether it is muted: by command, or by a maintenance window."""

from dataclasses import dataclass

from csi.config.settings import NotifySettings
from csi.config.weekly_windows import windows_end
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
    return windows_end(settings.windows, settings.timezone, now)
