"""Notify operators once when an alert has lasted, once when it is resolved, and ping the heartbeat URL."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi import clock, notifications
from csi.errors import ConfigError, NetError
from csi.logs import log
from csi.net import HttpLimits
from csi.notifications import Kind
from csi.runtime import Runtime
from csi.status.problems import KINDS, PASSING_SECONDS, Problem, to_notify
from csi.status.verdict import verdict
from csi.store import alerts
from csi.store.alerts import StoredAlert
from csi.store.db import writing

HOLD_SECONDS = 120.0
"""Until a message that could not be sent is tried again."""

HISTORY = 20

MESSAGE_KINDS: dict[str, Kind] = {"notice": "info", "degraded": "warning", "down": "failure"}

PING_LIMITS = HttpLimits(total=10.0, connect=5.0, max_body=64 * 1024, max_redirects=0)


@dataclass(frozen=True)
class AlertOverview:
    """Alerts that fire now, the last ones that were recorded, and how operators are notified."""

    services: int
    heartbeat: bool
    current: tuple[Problem, ...]
    noted: tuple[StoredAlert, ...]


def firing(rt: Runtime) -> list[Problem]:
    return to_notify(verdict(rt).problems)


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
        _record(rt, found)
    if rt.settings.notify.enabled and urls(rt):
        with writing():
            due = alerts.claim_unnotified(rt.now(), HOLD_SECONDS)
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


def say(rt: Runtime, title: str, body: str, kind: Kind = "info") -> bool:
    """True when every service accepted it. The library's own error is dropped: it may contain a token."""
    return notifications.send(urls(rt), f"CSI {rt.settings.csi.instance_id}: {title}", body, kind)


def urls(rt: Runtime) -> list[str]:
    secret = rt.settings.secrets.notify_urls
    return notifications.split_urls(secret.get_secret_value()) if secret else []


def require_post(rt: Runtime) -> None:
    """ConfigError unless the configured services can be used. At start, where the operator reads it."""
    if rt.settings.notify.enabled and (found := urls(rt)):
        notifications.check(found)


def _record(rt: Runtime, found: Sequence[Problem]) -> None:
    now, there = rt.now(), {(problem.id, problem.subject) for problem in found}
    for problem in found:
        new = alerts.fire(
            problem.id,
            problem.subject,
            severity=problem.severity,
            text=f"{problem.what_and_why}; {problem.effect}",
            remedy=problem.remedy,
            since=min(problem.since or now, now),
            delay=delay(rt, problem),
            events=problem.events or 0,
            now=now,
        )
        if new:
            log.warning("alert fires", alert=problem.id, subject=problem.subject, text=problem.what_and_why)
    for alert in alerts.firing():
        if (alert.name, alert.subject) not in there and alerts.resolve(alert, now):
            log.info("alert resolved", alert=alert.name, subject=alert.subject, seconds=round(now - alert.since))
    alerts.delete_old(now)


def delay(rt: Runtime, problem: Problem) -> float:
    """How long a problem lasts before operators are notified: as configured, or none where one answer proves it."""
    configured = rt.settings.notify.after_seconds
    if configured is not None:
        return configured
    return 0.0 if problem.is_proven else PASSING_SECONDS


def _notify(rt: Runtime, alert: StoredAlert) -> None:
    title, body = message(alert, rt.settings.web.public_url)
    kind: Kind = "success" if alert.resolved_at is not None else MESSAGE_KINDS.get(alert.severity, "warning")
    try:
        sent = say(rt, title, body, kind)
    except ConfigError as error:
        log.warning("notifications are not possible", error=str(error))
        return
    if sent:
        with writing():
            alerts.mark_notified(alert, rt.now())
        log.info("notification sent", alert=alert.name, resolved=alert.resolved_at is not None)
    else:
        log.warning("notification could not be sent; it is retried", alert=alert.name)


def message(alert: StoredAlert, public_url: str | None) -> tuple[str, str]:
    """Title and body of a notification; pure."""
    name = alert.name.replace("_", " ")
    title = name if alert.subject in name else f"{name} ({alert.subject})"
    affected = f" {alert.events:,} events were affected." if alert.events else ""
    if alert.resolved_at is not None:
        minutes = f"{alert.failing_seconds / 60:.0f} minutes" if alert.failing_seconds >= 90 else "a minute"
        times = f", in {alert.recoveries + 1} parts" if alert.recoveries else ""
        late = "" if alert.notified_at else " This notification is late: it could not be sent before."
        lasted = f"It failed for {minutes}{times}, from {clock.iso(alert.since)} to {clock.iso(alert.resolved_at)}."
        return f"{title}: resolved", f"{lasted}{affected} It was: {alert.text}.{late}"
    waiting = f" {alert.events:,} events are affected." if alert.events else ""
    lines = [f"{alert.text}. Since {clock.iso(alert.since)}.{waiting}", f"What to do: {alert.remedy}"]
    kind = KINDS.get(alert.name)
    if kind is not None and public_url:
        lines += [f"Dashboard: {public_url}{kind.page}", f"Runbook: {public_url}/docs/runbook#{kind.runbook}"]
    return title, "\n".join(lines)


def _note_ping(rt: Runtime, fault: str | None) -> bool:
    """One log line when it begins to fail, not one a minute."""
    was, rt.process.ping_fault = rt.process.ping_fault, fault
    if fault is not None and was is None:
        log.warning("heartbeat URL could not be reached", error=fault)
    return fault is None
