"""Notify operators once when an alert has lasted, once when it is resolved, and ping the heartbeat URL."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi import clock, notifications
from csi.errors import ConfigError, NetError
from csi.logs import log
from csi.net import HttpLimits
from csi.runtime import Runtime
from csi.status.verdict import Problem, verdict
from csi.store import alerts
from csi.store.alerts import StoredAlert
from csi.store.db import writing

HOLD_SECONDS = 120.0
"""Until a message that could not be sent is tried again."""

HISTORY = 20

PING_LIMITS = HttpLimits(total=10.0, connect=5.0, max_body=64 * 1024, max_redirects=0)


@dataclass(frozen=True)
class AlertOverview:
    """Alerts that fire now, the last ones that were recorded, and how operators are notified."""

    services: int
    heartbeat: bool
    current: tuple[Problem, ...]
    noted: tuple[StoredAlert, ...]


def firing(rt: Runtime) -> list[Problem]:
    return [problem for problem in verdict(rt).problems if "alert" in problem.fails]


def standing(rt: Runtime) -> AlertOverview:
    """Reads only: nothing is recorded and no message is sent."""
    has_heartbeat = rt.settings.secrets.heartbeat_url is not None
    return AlertOverview(len(urls(rt)), has_heartbeat, tuple(firing(rt)), tuple(alerts.latest(HISTORY)))


def look(rt: Runtime, *, ours: bool = True) -> list[StoredAlert]:
    """Record which alerts began and ended, and notify operators. Returns those that fire.

    `ours`: the worker itself checks, which cannot judge its own heartbeat.
    """
    found = [problem for problem in firing(rt) if not (ours and problem.id == "worker_silent")]
    with writing():
        _record(found, rt.now())
    if rt.settings.notify.enabled and urls(rt):
        with writing():
            now = rt.now()
            due = alerts.claim_unnotified(now, now - rt.settings.notify.after_seconds, HOLD_SECONDS)
        for alert in due:
            _notify(rt, alert)
    return alerts.firing()


def ping(rt: Runtime) -> bool:
    """Tell a monitoring service that the worker is alive. True: it answered, or none is configured."""
    url = rt.settings.secrets.heartbeat_url
    if url is None:
        return True
    try:
        answer = rt.net.get(url.get_secret_value(), limits=PING_LIMITS)
    except NetError as error:
        return _note_ping(rt, error.kind)
    return _note_ping(rt, None if answer.status < 300 else f"http {answer.status}")


def say(rt: Runtime, title: str, body: str) -> bool:
    """True when every service accepted it. The library's own error is dropped: it may contain a token."""
    return notifications.send(urls(rt), f"CSI {rt.settings.csi.instance_id}: {title}", body)


def urls(rt: Runtime) -> list[str]:
    secret = rt.settings.secrets.notify_urls
    return notifications.split_urls(secret.get_secret_value()) if secret else []


def require_post(rt: Runtime) -> None:
    """ConfigError unless the configured services can be used. At start, where the operator reads it."""
    if rt.settings.notify.enabled and (found := urls(rt)):
        notifications.check(found)


def _record(found: Sequence[Problem], now: float) -> None:
    there = {(problem.id, problem.subject) for problem in found}
    for problem in found:
        if alerts.fire(problem.id, problem.subject, f"{problem.what}; {problem.effect}", now):
            log.warning("alert fires", alert=problem.id, subject=problem.subject, text=problem.what)
    for alert in alerts.firing():
        if (alert.name, alert.subject) not in there and alerts.resolve(alert, now):
            log.info("alert resolved", alert=alert.name, subject=alert.subject, seconds=round(now - alert.since))
    alerts.delete_old(now)


def _notify(rt: Runtime, alert: StoredAlert) -> None:
    title, body = message(alert)
    try:
        sent = say(rt, title, body)
    except ConfigError as error:
        log.warning("notifications are not possible", error=str(error))
        return
    if sent:
        with writing():
            alerts.mark_notified(alert, rt.now())
        log.info("notification sent", alert=alert.name, resolved=alert.resolved_at is not None)
    else:
        log.warning("notification could not be sent; it is retried", alert=alert.name)


def message(alert: StoredAlert) -> tuple[str, str]:
    """Title and body of a notification; pure."""
    word = alert.name.replace("_", " ")
    if alert.resolved_at is None:
        return word, f"{alert.text}. Since {clock.iso(alert.since)}. What to do: ops/runbook.md"
    minutes = max(alert.resolved_at - alert.since, 0.0) / 60
    return f"{word}: resolved", f"It lasted {minutes:.0f} minutes, from {clock.iso(alert.since)}. It was: {alert.text}"


def _note_ping(rt: Runtime, fault: str | None) -> bool:
    """One log line when it begins to fail, not one a minute."""
    was, rt.process.ping_fault = rt.process.ping_fault, fault
    if fault is not None and was is None:
        log.warning("heartbeat URL could not be reached", error=fault)
    return fault is None
