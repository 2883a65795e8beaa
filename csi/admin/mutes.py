"""Mute notifications for a time, and end mutes before their time."""

from csi import clock
from csi.ingester.text import clean
from csi.logs import log
from csi.mutes import CannotMute, check_mute
from csi.runtime import Runtime
from csi.status.problems import ALERTS
from csi.store import mutes
from csi.store.db import writing
from csi.store.mutes import Mute

__all__ = ["CannotMute"]


def mute(rt: Runtime, seconds: float, *, problem: str | None = None, reason: str = "", by: str) -> Mute:
    """Operators are not notified until then; alerts are recorded. What still fires then is notified."""
    check_mute(seconds, problem, ALERTS)
    now = rt.now()
    with writing():
        made = mutes.add(problem, clean(reason, 200).strip() or None, by=by, now=now, until=now + seconds)
    log.info("notifications are muted", problem=problem, until=clock.iso(made.until), by=by)
    return made


def unmute(rt: Runtime, mute_id: int | None = None, *, by: str) -> int:
    """End one mute, or every one. Returns how many were active."""
    with writing():
        ended = mutes.end(rt.now(), mute_id)
    log.info("mutes are ended", number=ended, by=by)
    return ended
