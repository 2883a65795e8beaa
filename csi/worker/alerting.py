"""Notify operators once when an alert has lasted, once when it is resolved, and ping the heartbeat URL."""

from dataclasses import dataclass

from csi import notifications
from csi.alerts import StoredAlert, message, message_kind
from csi.errors import ConfigError, NetError
from csi.logs import log
from csi.net import HttpLimits
from csi.notifications import Kind
from csi.runtime import Runtime
from csi.status.problems import KINDS, Problem, to_notify
from csi.status.verdict import verdict
from csi.store import alerts, heartbeats
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
    return to_notify(verdict(rt).problems)


def standing(rt: Runtime) -> AlertOverview:
    """Reads only: nothing is recorded and no message is sent."""
    has_heartbeat = rt.settings.secrets.heartbeat_url is not None
    return AlertOverview(len(urls(rt)), has_heartbeat, tuple(firing(rt)), tuple(alerts.latest(HISTORY)))


def look(rt: Runtime, *, ours: bool = True) -> list[StoredAlert]:
    """Record which alerts began and ended, and notify operators. Returns those that fire.

    `ours`: the worker itself checks, whose heartbeat may be late without a cause.
    """
    found = [problem for problem in firing(rt) if not (ours and problem.id == "worker_silent" and not problem.cause)]
    with writing():
        alerts.record(found, rt.now(), rt.settings.notify.after_seconds)
    if rt.settings.notify.enabled and urls(rt):
        with writing():
            due = alerts.claim_unnotified(rt.now(), HOLD_SECONDS)
        for alert in due:
            _notify(rt, alert)
    return alerts.firing()


def note_round(rt: Runtime, started_at: float) -> None:
    """The worker evaluates alerts: the sidecar need not."""
    with writing():
        heartbeats.beat(heartbeats.NOTIFIER, rt.now(), started_at)


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


def _notify(rt: Runtime, alert: StoredAlert) -> None:
    title, body = message(alert, KINDS, rt.settings.web.public_url)
    try:
        sent = say(rt, title, body, message_kind(alert))
    except ConfigError as error:
        log.warning("notifications are not possible", error=str(error))
        return
    if sent:
        with writing():
            alerts.mark_notified(alert, rt.now())
        log.info("notification sent", alert=alert.name, resolved=alert.resolved_at is not None)
    else:
        log.warning("notification could not be sent; it is retried", alert=alert.name)


def _note_ping(rt: Runtime, fault: str | None) -> bool:
    """One log line when it begins to fail, not one a minute."""
    was, rt.process.ping_fault = rt.process.ping_fault, fault
    if fault is not None and was is None:
        log.warning("heartbeat URL could not be reached", error=fault)
    return fault is None
