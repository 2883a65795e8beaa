"""Alerts: a problem that lasts becomes a row, and the operator is notified once when it has lasted and once when it is
resolved, also across restarts and with several processes. The ingester and processing each have such a table.

An alert that is resolved and fires again soon after is the same episode: its row is reopened, and the seconds that it
failed add up. So a receiver that recovers for a moment every few minutes is reported, once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from csi import clock
from csi.logs import log
from csi.notification_sending import Message, MessageSender
from csi.notifications import Kind, Target
from csi.problems import PASSING_SECONDS, ProblemKind, ProblemReport, affected_words
from csi.sql import SqlDatabase

KEPT_SECONDS = 90 * 86_400.0
SAME_EPISODE_SECONDS = 900.0
"""An alert that fires again within this time after it was resolved continues its row."""
MESSAGE_KINDS: dict[str, Kind] = {"notice": "info", "degraded": "warning", "down": "failure"}
OVER_SECONDS = 30.0
OVER_AFTER_RECOVERIES = 300.0
"""How long an alert stays resolved before the resolved message is sent: longer where it fired again before."""
AGAIN_SECONDS = 6 * 3600.0
"""The least time between two notifications of an alert that fires, however often there is something new."""
LATE_SECONDS = 2 * 86_400.0
"""No resolved message is sent for an alert resolved more than two days ago, so a new target gets no old messages."""


@dataclass(frozen=True)
class StoredAlert:
    """An alert as it was when its row was read. `resolved_at` None: it is firing."""

    id: int
    name: str
    subject: str
    severity: str
    text: str
    remedy: str
    since: float
    firing_at: float
    """When it began to fire without an interruption."""
    failing_seconds: float
    """How long it fired before `firing_at`, and in all once it is resolved."""
    recoveries: int
    events: int
    """The most events that were affected at once."""
    revision: int
    """As in ProblemReport, and the one that the operator was notified of."""
    notified_revision: int
    notified_at: float | None
    resolved_at: float | None
    resolved_notified_at: float | None
    """When the resolved message was sent; or when it was resolved, where it was muted and no message is due."""
    next_notify_at: float
    """Another process may be sending its message until then."""

    @property
    def was_muted(self) -> bool:
        """It was resolved while it was muted: no message of it was sent."""
        return self.notified_at is None and self.resolved_notified_at is not None


def never_muted(name: str) -> bool:
    return False


_COLUMNS = ", ".join(StoredAlert.__dataclass_fields__)


class AlertTable:
    """The table `alerts` of one database. The caller opens the transactions."""

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql

    def record(
        self,
        problems: Sequence[ProblemReport],
        now: float,
        after_seconds: float | None,
        is_muted: Callable[[str], bool] = never_muted,
        kinds: Mapping[str, ProblemKind] | None = None,
    ) -> None:
        """Record which alerts began and which ended. `after_seconds`: see `delay`.

        An alert that one of the problems explains stays open: it is neither among them nor over. One that the
        operator does not know yet ends without a message. So does one that ends together with an alert of the same
        subject that explains it (`kinds`), as few API units do with none: one message says that both are over.
        """
        there = {(problem.id, problem.subject) for problem in problems}
        for problem in problems:
            new = self.fire(
                problem.id,
                problem.subject,
                severity=problem.severity,
                text=f"{problem.what_and_why}; {problem.effect}",
                remedy=problem.remedy,
                since=min(problem.since or now, now),
                delay=delay(problem, after_seconds),
                events=problem.events or 0,
                revision=problem.revision,
                now=now,
            )
            if new:
                log.warning("alert fires", alert=problem.id, subject=problem.subject, text=problem.what_and_why)
        gone = [alert for alert in self.firing() if (alert.name, alert.subject) not in there]
        for alert in gone:
            is_explained = any(problem.explains(alert.name, alert.subject) for problem in problems)
            is_told = _ends_with_its_cause(alert, gone, kinds or {})
            is_over = not (is_explained and alert.notified_at)
            is_silent = is_explained or is_muted(alert.name)
            if is_over and self.resolve(alert, now, is_muted=is_silent, is_told=is_told):
                log.info("alert resolved", alert=alert.name, subject=alert.subject, seconds=round(now - alert.since))
        self.delete_old(now)

    def fire(
        self,
        name: str,
        subject: str,
        *,
        severity: str,
        text: str,
        remedy: str,
        since: float,
        delay: float,
        events: int,
        now: float,
        revision: int = 0,
    ) -> bool:
        """Record that the alert is firing, with these texts. True: it was not firing before.

        `delay`: how long it fires before the operator is notified. A unique index allows one firing alert of a name and
        subject, so of two workers only one gets True.
        """
        texts = (severity, text, remedy, delay, revision, events, events)
        update = (
            "UPDATE alerts SET severity = ?, text = ?, remedy = ?, delay = ?, revision = ?, "
            "events = CASE WHEN events > ? THEN events ELSE ? END"
        )
        place = "WHERE name = ? AND subject = ?"
        if self._sql.changed(f"{update} {place} AND resolved_at IS NULL", *texts, name, subject):
            return False
        reopen = f"{update}, resolved_at = NULL, firing_at = ?, recoveries = recoveries + 1, next_notify_at = 0 {place}"
        recent = "resolved_notified_at IS NULL AND resolved_at > ?"
        if self._sql.changed(f"{reopen} AND {recent}", *texts, now, name, subject, now - SAME_EPISODE_SECONDS):
            return True
        columns = "name, subject, severity, text, remedy, delay, revision, events, since, firing_at"
        sql = f"INSERT INTO alerts ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        values = (name, subject, severity, text, remedy, delay, revision, events, since, since)
        return bool(self._sql.changed(sql, *values))

    def resolve(self, alert: StoredAlert, now: float, *, is_muted: bool = False, is_told: bool = False) -> bool:
        """Record that the alert is resolved. False: another worker has done so.

        Where it is muted and no message of its start was sent, no resolved message is sent either; nor where the
        message of another alert tells its end (`is_told`).
        """
        at = "CAST(? AS DOUBLE PRECISION)"
        is_silent = is_told or is_muted
        told_at = at if is_told else f"CASE WHEN notified_at IS NULL THEN {at} END"
        sql = (
            "UPDATE alerts SET resolved_at = ?, failing_seconds = failing_seconds + ?, next_notify_at = 0"
            f"{f', resolved_notified_at = {told_at}' if is_silent else ''} WHERE id = ? AND resolved_at IS NULL"
        )
        times = (now, max(now - alert.firing_at, 0.0), *((now,) if is_silent else ()))
        return bool(self._sql.changed(sql, *times, alert.id))

    def firing(self) -> list[StoredAlert]:
        """Oldest first."""
        return self._select("resolved_at IS NULL ORDER BY id")

    def latest(self, limit: int) -> list[StoredAlert]:
        """Newest first, without alerts resolved before their notification delay."""
        muted = "resolved_notified_at IS NOT NULL AND failing_seconds >= delay"
        known = f"resolved_at IS NULL OR notified_at IS NOT NULL OR ({muted})"
        return self._select(f"({known}) ORDER BY id DESC LIMIT ?", limit)

    def claim_unnotified(
        self, now: float, hold_seconds: float, is_muted: Callable[[str], bool] = never_muted
    ) -> list[StoredAlert]:
        """Alerts to notify the operator of now: firing for longer than their delay, firing with something new since the
        last notification, or over; none that is muted.

        One that was resolved before its notification could be sent is returned, too: the operator learns of it late.
        Each is returned to one process only, and again after `hold_seconds` unless it was marked as notified: a process
        that dies before it sends the message delays it by that time. Of one name and subject only the oldest is
        returned, so that the end of an episode is not sent after the start of the next one.
        """
        begun = "resolved_at IS NULL AND notified_at IS NULL AND failing_seconds + (? - firing_at) >= delay"
        again = "resolved_at IS NULL AND revision > notified_revision AND notified_at <= ?"
        over = (
            "resolved_at IS NOT NULL AND resolved_notified_at IS NULL "
            "AND (notified_at IS NOT NULL OR failing_seconds >= delay) "
            "AND resolved_at + CASE WHEN recoveries > 0 THEN ? ELSE ? END <= ? AND resolved_at > ?"
        )
        times = (now, now - AGAIN_SECONDS, OVER_AFTER_RECOVERIES, OVER_SECONDS, now, now - LATE_SECONDS)
        found = self._select(f"({begun}) OR ({again}) OR ({over}) ORDER BY id DESC", *times)
        oldest = {(alert.name, alert.subject): alert for alert in found}
        due = [alert for alert in oldest.values() if alert.next_notify_at <= now and not is_muted(alert.name)]
        claim = "UPDATE alerts SET next_notify_at = ? WHERE id = ? AND next_notify_at <= ?"
        claimed = [alert for alert in due if self._sql.changed(claim, now + hold_seconds, alert.id, now)]
        return sorted(claimed, key=lambda alert: alert.id)

    def mark_notified(self, alert: StoredAlert, now: float) -> None:
        """The operator has the message for the state that `alert` has. One that was over needs no second one."""
        what = "notified_at = ?"
        if alert.resolved_at is not None:
            what = "notified_at = COALESCE(notified_at, ?), resolved_notified_at = ?"
        sql = f"UPDATE alerts SET {what}, notified_revision = ?, next_notify_at = 0 WHERE id = ?"
        self._sql.run(sql, *[now] * what.count("?"), alert.revision, alert.id)

    def delete_old(self, now: float) -> int:
        """Also alerts resolved before their notification delay, once they cannot fire again as the same episode."""
        unknown = "notified_at IS NULL AND failing_seconds < delay"
        sql = f"DELETE FROM alerts WHERE resolved_at < ? OR (resolved_at < ? AND {unknown})"
        return self._sql.changed(sql, now - KEPT_SECONDS, now - SAME_EPISODE_SECONDS)

    def _select(self, rest: str, *values: object) -> list[StoredAlert]:
        return [StoredAlert(*row) for row in self._sql.fetch(f"SELECT {_COLUMNS} FROM alerts WHERE {rest}", *values)]


def _ends_with_its_cause(alert: StoredAlert, ending: Sequence[StoredAlert], kinds: Mapping[str, ProblemKind]) -> bool:
    """One of the alerts that end now explains this one, and its end is notified."""
    return any(
        alert.name in kinds[one.name].explains and one.subject == alert.subject and one.notified_at is not None
        for one in ending
        if one.name in kinds
    )


def delay(problem: ProblemReport, after_seconds: float | None) -> float:
    """How long a problem lasts before operators are notified: as configured, or none where one answer proves it."""
    if after_seconds is not None:
        return after_seconds
    return 0.0 if problem.is_proven else PASSING_SECONDS


def message_key(alert: StoredAlert) -> str:
    """Identifies the message that is due for the alert: a target gets one of a key."""
    if alert.resolved_at is not None:
        return f"alert:{alert.id}:resolved"
    return f"{first_message_key(alert)}:{alert.revision}" if alert.notified_at is not None else first_message_key(alert)


def first_message_key(alert: StoredAlert) -> str:
    return f"alert:{alert.id}:firing"


def message_kind(alert: StoredAlert) -> Kind:
    return "success" if alert.resolved_at is not None else MESSAGE_KINDS.get(alert.severity, "warning")


def message(
    alert: StoredAlert,
    kinds: Mapping[str, ProblemKind],
    public_url: str | None,
    section: str | None = None,
    *,
    is_late: bool | None = None,
    has_runbook: bool = True,
) -> tuple[str, str]:
    """Title and body of a notification; pure. `section`: of the runbook, where it is not the one of the kind.
    `is_late`: there was none at its start; None: as the row says. `has_runbook`: it is served at `public_url`, too."""
    name = alert.name.replace("_", " ")
    title = name if alert.subject in name else f"{name} ({alert.subject})"
    if alert.resolved_at is not None:
        affected = f" {affected_words(alert.events, 'was', 'were')}." if alert.events else ""
        minutes = f"{alert.failing_seconds / 60:.0f} minutes" if alert.failing_seconds >= 90 else "a minute"
        times = f", in {alert.recoveries + 1} parts" if alert.recoveries else ""
        was_late = alert.notified_at is None if is_late is None else is_late
        late = " This notification is late: it could not be sent before." if was_late else ""
        lasted = f"It failed for {minutes}{times}, from {clock.iso(alert.since)} to {clock.iso(alert.resolved_at)}."
        title, text = f"{title}: resolved", f"{lasted}{affected} It was: {alert.text}.{late}"
        remedy = "no action needed; the problem is resolved"
    else:
        waiting = f" {affected_words(alert.events)}." if alert.events else ""
        text = f"{alert.text}. Since {clock.iso(alert.since)}.{waiting}"
        remedy = alert.remedy or "`csi doctor` shows cause and remedy"  # a row of release 1.0 has none
    lines, kind = [text, f"What to do: {remedy}"], kinds.get(alert.name)
    if kind is not None and public_url:
        lines.append(f"Dashboard: {public_url}{kind.page}")
    if kind is not None and public_url and has_runbook:
        lines.append(f"Runbook: {public_url}/docs/runbook#{section or kind.runbook}")
    elif kind is not None:
        lines.append(f"Runbook: csi docs runbook {section or kind.runbook}")
    return title, "\n".join(lines)


@dataclass(frozen=True)
class AlertNotifier:
    """Sends the message that is due for an alert to each target."""

    table: AlertTable
    sender: MessageSender
    kinds: Mapping[str, ProblemKind]
    public_url: str | None
    has_runbook: bool = True

    def notify(self, alert: StoredAlert, targets: Sequence[Target], section: str | None = None) -> None:
        """To each target; one that fails is not sent the alert about itself. One that does not accept it gets it later,
        where another one has it."""
        notified = [one for one in targets if (alert.name, alert.subject) != ("notification_failed", one.name)]
        start, sent, accepted = first_message_key(alert), self.sender.table, 0
        kind: Literal["alert", "resolved"] = "alert" if alert.resolved_at is None else "resolved"
        for target in notified:
            is_late = alert.resolved_at is not None and not sent.has(start, target.name)
            if is_late:
                with self.sender.sql.writing():
                    sent.drop(start, target.name)  # the message of the end says all that this one does
            texts = message(alert, self.kinds, self.public_url, section, is_late=is_late, has_runbook=self.has_runbook)
            one = Message(message_key(alert), kind, message_kind(alert), *texts)
            accepted += self.sender.send_to(target, one)
        if accepted or (not notified and alert.resolved_at is not None):
            with self.sender.sql.writing():
                self.table.mark_notified(alert, self.sender.now())
        if 0 < accepted < len(notified):
            self.sender.retry_later(message_key(alert))
