"""Notify operators that the database cannot be used. Such an alert cannot be a row, so this process remembers it."""

import threading

from csi import notifications
from csi.alerts import StoredAlert, delay, first_message_key, message, message_kind
from csi.errors import ConfigError
from csi.logs import log
from csi.notification_sending import HOLD_SECONDS
from csi.notifications import Target
from csi.runtime import Runtime, notification_targets
from csi.status.mutes import active_mutes, window_end
from csi.status.problems import KINDS, Problem
from csi.status.storage_problems import PASSING, problem_of
from csi.store import alerts, database_faults, notification_log
from csi.store.db import DatabaseError, writing


class UnstoredAlert:
    """The alert `storage` of this process while it cannot be stored. A process that ends forgets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the notifier and the watch for stalls both call it
        self._problem: Problem | None = None
        self._failures = 0
        self._sent: dict[str, float] = {}
        """By target, when it accepted the message."""
        self._next_try_at = 0.0

    @property
    def is_failing(self) -> bool:
        return self._problem is not None

    def failed(self, rt: Runtime, error: Exception, *, since: float | None = None, may_send: bool = True) -> None:
        """A statement failed with this database error. The operator is notified once, when it has lasted.

        `since`: when the first one failed; None: at the first call. `may_send` False: another process is there to send
        the message.
        """
        with self._lock:
            now, fault = rt.now(), database_faults.identify(error)
            known = self._problem.since if self._problem is not None else None
            began = min(known or now, since or now)
            self._problem = problem = problem_of(fault, began)
            self._failures += 1
            if fault.kind not in PASSING or self._failures > 1:  # a single timeout is no fault
                rt.process.database_fault = fault
            lasted = now - began >= delay(problem, rt.settings.notify.after_seconds)
            unsent = [one for one in notification_targets(rt.settings) if one.name not in self._sent]
            if not (may_send and lasted and unsent and rt.settings.notify.enabled and now >= self._next_try_at):
                return
            if self._sent or not _is_known_or_muted(rt):
                self._next_try_at = now + HOLD_SECONDS
                self._sent |= {one.name: now for one in unsent if _send(rt, one, problem)}

    def worked(self, rt: Runtime) -> None:
        """The database can be written. An alert that the operator knows becomes a row, so that its end is notified.
        To be called before alerts are evaluated, which would store the alert as one that the operator does not know."""
        with self._lock:
            problem, sent, rt.process.database_fault = self._problem, self._sent, None
            if problem is not None and sent:
                with writing():
                    _store(rt, problem, sent)
            self._problem, self._failures, self._sent, self._next_try_at = None, 0, {}, 0.0


def _is_known_or_muted(rt: Runtime) -> bool:
    """Whether a row says that the operator was notified, for example when the disk was nearly full; or a mute."""
    try:
        known = any(alert.name == "storage" and alert.notified_at is not None for alert in alerts.firing())
        return known or active_mutes(rt).covers("storage")
    except DatabaseError:
        return window_end(rt.settings.notify, rt.now()) is not None


def _as_alert(problem: Problem) -> StoredAlert:
    """In the shape of a row, for its texts."""
    since = problem.since or 0.0
    return StoredAlert(
        id=0,
        name=problem.id,
        subject=problem.subject,
        severity=problem.severity,
        text=f"{problem.what_and_why}; {problem.effect}",
        remedy=problem.remedy,
        since=since,
        firing_at=since,
        failing_seconds=0.0,
        recoveries=0,
        events=0,
        revision=0,
        notified_revision=0,
        notified_at=None,
        resolved_at=None,
        resolved_notified_at=None,
        next_notify_at=0.0,
    )


def _send(rt: Runtime, target: Target, problem: Problem) -> bool:
    alert, error = _as_alert(problem), notifications.NOT_ACCEPTED
    title, body = message(alert, KINDS, rt.settings.web.public_url, problem.runbook)
    full_title = f"CSI {rt.settings.csi.instance_id}: {title}"
    try:
        is_sent = notifications.send([target.url], full_title, body, message_kind(alert))
    except ConfigError as unusable:
        is_sent, error = False, str(unusable)
    if is_sent:
        log.info("notification sent without a row: the database cannot be used", target=target.name, title=title)
    else:
        log.warning("notification without a row could not be sent", target=target.name, title=title, error=error)
    return is_sent


def _store(rt: Runtime, problem: Problem, sent: dict[str, float]) -> None:
    alerts.fire(
        problem.id,
        problem.subject,
        severity=problem.severity,
        text=f"{problem.what_and_why}; {problem.effect}",
        remedy=problem.remedy,
        since=problem.since or rt.now(),
        delay=0.0,
        events=0,
        now=rt.now(),
    )
    for alert in alerts.firing():
        if (alert.name, alert.subject) == (problem.id, problem.subject):
            alerts.mark_notified(alert, min(sent.values()))
            title, body = message(alert, KINDS, rt.settings.web.public_url, problem.runbook)
            row = {"kind": "alert", "severity": message_kind(alert), "title": title, "body": body}
            for target, at in sent.items():
                notification_log.record(first_message_key(alert), target, **row, error=None, now=at)
