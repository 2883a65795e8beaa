"""What is wrong now: the facts from settings, rows and disk, judged by the rules."""

import shutil

from csi.dlq import dead_letters
from csi.pipeline import quota_schedule
from csi.pipeline.rescue import WORKER
from csi.runtime import Runtime
from csi.status.alert_rules import Facts, Reading, Receiver, Trouble, judge
from csi.store import alerts, db, destinations, events, heartbeats, reloads


def current(rt: Runtime) -> list[Trouble]:
    return judge(gather(rt))


def gather(rt: Runtime) -> Facts:
    now, beat, forecast, reload = (
        rt.now(),
        heartbeats.latest(WORKER),
        quota_schedule.forecast(rt, rt.now()),
        reloads.last(),
    )
    return Facts(
        now=now,
        beat_at=beat.beat_at if beat else None,
        started_at=beat.started_at if beat else None,
        readings=_readings(rt),
        oldest_pending=events.oldest_pending() if rt.settings.features.delivery else None,
        away=_away(rt),
        dead_letters=dead_letters.open_count(),
        quota_left=forecast.left if forecast else None,
        quota_buffer=forecast.buffer if forecast else 0,
        reload_error=reload.error if reload else None,
        disk_used=_disk_used(rt),
    )


def _readings(rt: Runtime) -> tuple[Reading, ...]:
    if not rt.settings.features.polling:
        return ()
    enabled = rt.enabled_sources()
    found = [times for times in alerts.source_times() if times.source in enabled]
    return tuple(Reading(times.source, times.interval, times.last_success_at) for times in found)


def _away(rt: Runtime) -> tuple[Receiver, ...]:
    if not rt.settings.features.delivery:
        return ()
    found = [destinations.get(name) for name in rt.destinations]
    return tuple(Receiver(it.destination, _words(it.reason)) for it in found if it.breaker != "closed")


def _words(reason: str | None) -> str:
    """It may hold the receiver's own words: one short line."""
    return " ".join((reason or "no answer").split())[:200]


def _disk_used(rt: Runtime) -> float:
    """The share of the disk that is used; 0 where the database is elsewhere, or nobody can tell."""
    if db.is_postgres():
        return 0.0
    try:
        usage = shutil.disk_usage(rt.settings.csi.state_dir)
    except OSError:
        return 0.0
    return usage.used / max(usage.used + usage.free, 1)
