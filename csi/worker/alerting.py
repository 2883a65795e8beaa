"""Notify operators once when an alert has lasted, once when it is resolved, and ping the heartbeat URL."""

from collections.abc import Sequence

from csi import notifications
from csi.alerts import StoredAlert, first_message_key, message, message_key, message_kind
from csi.errors import MissingSetting, NetError
from csi.logs import log
from csi.net import HttpLimits
from csi.notifications import Target
from csi.runtime import Runtime, notification_targets
from csi.status import notification_problems
from csi.status.alert_overview import firing
from csi.status.mutes import active_mutes
from csi.status.notification_problems import notification_facts
from csi.status.problems import KINDS
from csi.store import alerts, heartbeats, notification_log
from csi.store.db import writing
from csi.worker import notification_sending, scheduled_messages
from csi.worker.notification_sending import HOLD_SECONDS, Message

PING_LIMITS = HttpLimits(total=10.0, connect=5.0, max_body=64 * 1024, max_redirects=0)


def evaluate(rt: Runtime, *, is_worker: bool = True) -> list[StoredAlert]:
    """Record which alerts began and ended, and notify operators. Returns those that fire.

    `is_worker`: called by the worker, which cannot judge its own heartbeat.
    """
    found = [
        problem for problem in firing(rt) if not (is_worker and problem.id == "worker_silent" and not problem.cause)
    ]
    muting = active_mutes(rt)
    with writing():
        alerts.record(found, rt.now(), rt.settings.notify.after_seconds, muting.covers)
    if rt.settings.notify.enabled and (targets := notification_targets(rt.settings)):
        with writing():
            due = alerts.claim_unnotified(rt.now(), HOLD_SECONDS, muting.covers)
        sections = {(problem.id, problem.subject): problem.runbook for problem in found}
        for alert in due:
            _notify(rt, alert, targets, sections.get((alert.name, alert.subject)))
        notification_sending.retry(rt)
        if not muting.mutes_all:
            scheduled_messages.send_due(rt, targets)
    return alerts.firing()


def note_round(rt: Runtime, started_at: float) -> None:
    """The worker evaluates alerts: the sidecar need not."""
    with writing():
        heartbeats.write(heartbeats.NOTIFIER, rt.now(), started_at)


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


def send_test(rt: Runtime) -> dict[str, bool]:
    """Send one message to every target, now. By target: whether it accepted the message. MissingSetting without one."""
    targets = notification_targets(rt.settings)
    if not targets:
        raise MissingSetting("CSI_NOTIFY_URLS is not set. Set it in the environment or in /etc/csi/env.")
    body = "This is a test: notifications work.\nWhat to do: nothing."
    test = Message(f"test:{rt.now()}", "test", "info", "test", body)
    return {target.name: notification_sending.send_to(rt, target, test) for target in targets}


def check_targets(rt: Runtime) -> None:
    """ConfigError unless the configured services can be used. At start, where the operator reads it."""
    if rt.settings.notify.enabled and (targets := notification_targets(rt.settings)):
        notifications.check([target.url for target in targets])


def warn_without_target(rt: Runtime) -> None:
    """Log at start that operators would not be notified of anything."""
    for problem in notification_problems.problems(notification_facts(rt)):
        if problem.id == "no_notification_target":
            log.warning("no notification target is set", effect=problem.effect, remedy=problem.remedy)


def _notify(rt: Runtime, alert: StoredAlert, targets: Sequence[Target], section: str | None) -> None:
    """To each target; one that fails is not sent the alert about itself."""
    notified = [one for one in targets if (alert.name, alert.subject) != ("notification_failed", one.name)]
    accepted = [target for target in notified if _notify_target(rt, alert, target, section)]
    if accepted or (not notified and alert.resolved_at is not None):
        with writing():
            alerts.mark_notified(alert, rt.now())
    if accepted and len(accepted) < len(notified):
        notification_sending.retry_later(rt, message_key(alert))


def _notify_target(rt: Runtime, alert: StoredAlert, target: Target, section: str | None) -> bool:
    start, is_late = first_message_key(alert), False
    if alert.resolved_at is not None and not notification_log.has(start, target.name):
        is_late = True
        with writing():
            notification_log.drop(start, target.name)  # the message of the end says all that this one does
    title, body = message(alert, KINDS, rt.settings.web.public_url, section, is_late=is_late)
    kind: notification_sending.MessageKind = "alert" if alert.resolved_at is None else "resolved"
    return notification_sending.send_to(rt, target, Message(message_key(alert), kind, message_kind(alert), title, body))


def _note_ping(rt: Runtime, fault: str | None) -> bool:
    """One log line when it begins to fail, not one a minute."""
    was, rt.process.ping_fault = rt.process.ping_fault, fault
    if fault is not None and was is None:
        log.warning("heartbeat URL could not be reached", error=fault)
    return fault is None
