"""Sources are read less often while many events wait, and not at all at the limit: the disk must not fill.

What waits is in the rows; a process counts it at most every COUNT_SECONDS.
"""

from csi.logs import log
from csi.pipeline import quota_schedule
from csi.runtime import Runtime
from csi.scheduling.backpressure import Pressure, slowdown
from csi.store import events, inbox
from csi.store.models import Watch

COUNT_SECONDS = 5.0


def measure(rt: Runtime) -> Pressure:
    limit = rt.settings.csi.max_backlog_events
    waiting = inbox.waiting(limit) + events.waiting(limit) if limit else 0
    return Pressure(min(waiting, limit), limit, slowdown(waiting, limit))


def current(rt: Runtime) -> Pressure:
    """The last count of this process, if it is recent. Logs when reading slows down, stops, or is back to normal."""
    now, last = rt.now(), rt.process.pressure
    if last is not None and 0 <= now - rt.process.pressure_measured_at < COUNT_SECONDS:
        return last
    found = measure(rt)
    rt.process.pressure, rt.process.pressure_measured_at = found, now
    before = last.factor if last is not None else 1.0
    if (found.factor is None, found.is_felt) != (before is None, before != 1.0):
        facts = {"waiting": found.waiting, "limit": found.limit}
        if found.factor is None:
            log.warning("backlog is at its limit; nothing is read until it shrinks", **facts)
        elif found.is_felt:
            log.warning("backlog is large; sources are read less often", factor=round(found.factor, 1), **facts)
        else:
            log.info("backlog is small again; sources are read at their intervals", **facts)
    return found


def note_added(rt: Runtime, items: int) -> None:
    """A read has stored so many items: one of many reads in these seconds must not count as none."""
    if items >= 1_000 or (rt.process.pressure is not None and rt.process.pressure.is_felt):
        rt.process.pressure_measured_at = float("-inf")


def may_read(rt: Runtime) -> bool:
    return current(rt).factor is not None


def later(rt: Runtime, watch: Watch, at: float, now: float) -> float:
    """The time of the next read under the pressure of the backlog. Stores the interval in force on the watch: health
    checks and lists show it."""
    factor = current(rt).factor or 1.0
    if factor == 1.0 or at <= now:
        return at
    planned = watch.planned_interval or watch.interval_seconds
    quota_schedule.set_planned_interval(watch, planned * factor)
    return now + (at - now) * factor
