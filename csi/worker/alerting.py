"""Notify operators once when an alert has lasted, once when it is resolved, and ping the heartbeat URL."""

from csi import notifications
from csi.alerts import AlertNotifier, StoredAlert
from csi.errors import MissingSetting, NetError
from csi.logs import log
from csi.net import HttpLimits
from csi.notification_sending import HOLD_SECONDS, Message
from csi.runtime import Runtime, notification_targets
from csi.status import notification_problems
from csi.status.alert_overview import firing
from csi.status.mutes import active_mutes
from csi.status.notification_problems import notification_facts
from csi.status.problems import KINDS
from csi.store import alerts, heartbeats
from csi.store.db import writing
from csi.worker import scheduled_messages
from csi.worker.notification_sending import sender

PING_LIMITS = HttpLimits(total=10.0, connect=5.0, max_body=64 * 1024, max_redirects=0)


def evaluate(rt: Runtime, *, is_worker: bool = True, is_notifier: bool = False) -> list[StoredAlert]:
    """Record which alerts began and ended, and notify operators. Returns those that fire.

    `is_worker`: called by a worker that makes progress, which cannot judge its own heartbeat. `is_notifier`: called by
    the worker's notifier, which is not silent: its last round is long ago where the machine was suspended.
    """
    own = {"notifier_silent"} if is_notifier else set()
    found = [
        problem
        for problem in firing(rt)
        if problem.id not in own and not (is_worker and problem.id == "worker_silent" and not problem.cause)
    ]
    muting = active_mutes(rt)
    with writing():
        alerts.record(found, rt.now(), rt.settings.notify.after_seconds, muting.covers, KINDS)
    if rt.settings.notify.enabled and (targets := notification_targets(rt.settings)):
        with writing():
            due = alerts.claim_unnotified(rt.now(), HOLD_SECONDS, muting.covers)
        sections = {(problem.id, problem.subject): problem.runbook for problem in found}
        notifier = AlertNotifier(alerts.table, sender(rt), KINDS, rt.settings.web.public_url)
        for alert in due:
            notifier.notify(alert, targets, sections.get((alert.name, alert.subject)))
        notifier.sender.retry(targets)
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
    return {target.name: sender(rt).send_to(target, test) for target in targets}


def check_targets(rt: Runtime) -> None:
    """ConfigError unless the configured services can be used. At start, where the operator reads it."""
    if rt.settings.notify.enabled and (targets := notification_targets(rt.settings)):
        notifications.check([target.url for target in targets])


def warn_without_target(rt: Runtime) -> None:
    """Log at start that operators would not be notified of anything."""
    for problem in notification_problems.problems(notification_facts(rt)):
        if problem.id == "no_notification_target":
            log.warning("no notification target is set", effect=problem.effect, remedy=problem.remedy)


def _note_ping(rt: Runtime, fault: str | None) -> bool:
    """One log line when it begins to fail, not one a minute."""
    was, rt.process.ping_fault = rt.process.ping_fault, fault
    if fault is not None and was is None:
        log.warning("heartbeat URL could not be reached", error=fault)
    return fault is None
