"""Send a message to the notification targets, each of them once, record the result of each, and try again what failed.

The ingester and processing each have a table of messages. A target that fails does not repeat messages to the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from csi import notifications
from csi.errors import CsiError
from csi.logs import log
from csi.notifications import Kind, Target
from csi.sql import SqlDatabase, columns, marks

KEPT = 1_000
HOLD_SECONDS = 120.0
"""Until a message that could not be sent is tried again."""
RETRY_SECONDS = 86_400.0
"""A message that other targets have is tried for this long."""
MessageKind = Literal["alert", "resolved", "test", "weekly_test", "daily_summary", "notices"]


@dataclass(frozen=True)
class Message:
    """`key` identifies it: a target that accepted a message of this key gets no second one."""

    key: str
    kind: MessageKind
    severity: Kind
    title: str
    body: str


@dataclass(frozen=True)
class Notification:
    """One message for one target. `message` is the same for all targets.

    `result`: `sent`, `failed` (the last attempt; without an attempt it waits behind earlier messages), or `dropped`: it
    is not tried again, because a later message of its alert says the same, or because it is too old.
    `next_attempt_at` None: this row alone causes no further attempt.
    """

    id: int
    message: str
    target: str
    kind: str
    severity: str
    title: str
    body: str
    result: str
    error: str | None
    attempts: int
    first_attempt_at: float
    last_attempt_at: float
    next_attempt_at: float | None
    sent_at: float | None

    @property
    def state(self) -> str:
        """`result`, or `waiting` before the first attempt."""
        return "waiting" if self.result == "failed" and not self.attempts else self.result


@dataclass(frozen=True)
class FailingTarget:
    """A target that did not accept the last message it was sent."""

    target: str
    since: float
    messages: int


class NotificationTable:
    """The table `notifications` of one database: one row for a message and a target. The newest rows are kept. The
    caller opens the transactions."""

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql

    def record(
        self,
        message: str,
        target: str,
        *,
        kind: str,
        severity: str,
        title: str,
        body: str,
        error: str | None,
        now: float,
    ) -> None:
        """Record an attempt: it failed with `error`, or the target accepted the message."""
        result, sent_at = ("sent", now) if error is None else ("failed", None)
        names = (
            "message, target, kind, severity, title, body, result, error, sent_at, last_attempt_at, first_attempt_at"
        )
        sql = f"""
            INSERT INTO notifications ({names}, attempts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)
            ON CONFLICT (message, target) DO UPDATE SET
                severity = excluded.severity, title = excluded.title, body = excluded.body, result = excluded.result,
                error = excluded.error, sent_at = excluded.sent_at, last_attempt_at = excluded.last_attempt_at,
                attempts = notifications.attempts + 1, next_attempt_at = NULL
            RETURNING id
        """
        newest = self._sql.number(sql, message, target, kind, severity, title, body, result, error, sent_at, now, now)
        self._sql.run("DELETE FROM notifications WHERE id <= ?", newest - KEPT)

    def has(self, message: str, target: str) -> bool:
        """Whether the target accepted the message."""
        sql = "SELECT 1 FROM notifications WHERE message = ? AND target = ? AND result = 'sent'"
        return bool(self._sql.fetch(sql, message, target))

    def retry_failed(self, message: str, at: float) -> None:
        """Try this message again at that time, for each target that has not accepted it."""
        self._sql.run(
            "UPDATE notifications SET next_attempt_at = ? WHERE message = ? AND result = 'failed'", at, message
        )

    def resend(self, number: int, now: float) -> bool:
        """Try this message again for its target, also one that the target has. False: there is no such row."""
        sql = """UPDATE notifications SET result = 'failed', next_attempt_at = ?, first_attempt_at = ?, error = NULL,
                        sent_at = NULL WHERE id = ?"""
        return self._sql.changed(sql, now, now, number) == 1

    def drop(self, message: str, target: str) -> None:
        """Do not try it again; nothing happens where the target has it."""
        sql = (
            "UPDATE notifications SET result = 'dropped', next_attempt_at = NULL "
            "WHERE message = ? AND target = ? AND result = 'failed'"
        )
        self._sql.run(sql, message, target)

    def waits(self, target: str) -> bool:
        """Whether the target has messages that are tried again: a new one waits behind them."""
        return bool(
            self._sql.fetch(
                "SELECT 1 FROM notifications WHERE target = ? AND next_attempt_at IS NOT NULL LIMIT 1", target
            )
        )

    def claim_oldest(self, target: str, now: float, hold_seconds: float) -> Notification | None:
        """The oldest message that is tried again for this target. None: there is none, or it is not due, or another
        worker is sending it. Younger ones wait for it, so that a target gets its messages in order."""
        sql = f"SELECT {columns(Notification)} FROM notifications WHERE target = ? AND next_attempt_at IS NOT NULL"
        oldest = self._sql.fetch_one(Notification, f"{sql} ORDER BY id LIMIT 1", target)
        if oldest is None:
            return None
        claim = "UPDATE notifications SET next_attempt_at = ? WHERE id = ? AND next_attempt_at <= ?"
        return oldest if self._sql.changed(claim, now + hold_seconds, oldest.id, now) else None

    def make_due(self, target: str, now: float) -> None:
        """The target accepts messages again: those that wait are sent now."""
        self._sql.run(
            "UPDATE notifications SET next_attempt_at = ? WHERE target = ? AND next_attempt_at > ?", now, target, now
        )

    def drop_older(self, before: float) -> int:
        """Do not try messages again that were first tried before this time."""
        sql = "UPDATE notifications SET result = 'dropped', next_attempt_at = NULL WHERE next_attempt_at IS NOT NULL"
        return self._sql.changed(f"{sql} AND first_attempt_at < ?", before)

    def latest(self, limit: int) -> list[Notification]:
        """Newest attempt first."""
        order = "ORDER BY last_attempt_at DESC, id DESC LIMIT ?"
        return self._sql.fetch_all(Notification, f"SELECT {columns(Notification)} FROM notifications {order}", limit)

    def failing(self, targets: Sequence[str]) -> list[FailingTarget]:
        """Those of the targets that accepted nothing since an attempt failed."""
        if not targets:
            return []
        accepted = (
            f"SELECT target, MAX(sent_at) AS at FROM notifications WHERE target IN ({marks(targets)}) GROUP BY target"
        )
        sql = f"""
            SELECT n.target, MIN(n.first_attempt_at), MAX(a.at), COUNT(*)
            FROM notifications n JOIN ({accepted}) a ON a.target = n.target
            WHERE n.result <> 'sent' AND n.last_attempt_at > COALESCE(a.at, 0) GROUP BY n.target ORDER BY n.target
        """
        return [
            FailingTarget(name, max(first, sent or 0.0), count)
            for name, first, sent, count in self._sql.fetch(sql, *targets)
        ]

    def queue(self, message: Message, target: str, now: float) -> None:
        """It waits behind earlier messages of the target. Nothing changes where it was tried before."""
        names = "message, target, kind, severity, title, body, result, attempts, last_attempt_at, first_attempt_at"
        sql = f"INSERT INTO notifications ({names}) VALUES (?, ?, ?, ?, ?, ?, 'failed', 0, ?, ?) ON CONFLICT DO NOTHING"
        texts = (message.kind, message.severity, message.title, message.body)
        self._sql.run(sql, message.key, target, *texts, now, now)


def post(target: Target, title: str, body: str, kind: Kind) -> bool:
    return notifications.send([target.url], title, body, kind)


@dataclass(frozen=True)
class MessageSender:
    """Sends messages and records them. `prefix` comes before each title, where it is sent; notices are no alerts and
    have none."""

    sql: SqlDatabase
    table: NotificationTable
    now: Callable[[], float]
    prefix: str = ""
    post: Callable[[Target, str, str, Kind], bool] = field(default=post)
    """True: the target accepted it. CsiError: why it did not."""
    count: Callable[[str], None] = lambda result: None
    """Called in the transaction that records an attempt, with `sent` or `failed`."""

    def send(self, message: Message, to: Sequence[Target]) -> list[Target]:
        """The targets that have the message now. Where some do and some do not, it is tried again for the others."""
        accepted = [target for target in to if self.send_to(target, message)]
        if accepted and len(accepted) < len(to):
            self.retry_later(message.key)
        return accepted

    def send_to(self, target: Target, message: Message) -> bool:
        """True when the target has the message, also from an earlier attempt. It waits behind messages that are
        retried."""
        if self.table.has(message.key, target.name):
            return True
        if self.table.waits(target.name):
            with self.sql.writing():
                self.table.queue(message, target.name, self.now())
            return False
        return self._record(target, message, self._attempt(target, message))

    def retry_later(self, key: str) -> None:
        with self.sql.writing():
            self.table.retry_failed(key, self.now() + HOLD_SECONDS)

    def retry(self, targets: Sequence[Target]) -> None:
        """Send messages again that some targets have and others have not, to each in order, until one fails."""
        with self.sql.writing():
            dropped = self.table.drop_older(self.now() - RETRY_SECONDS)
        if dropped:
            log.warning("notifications are not tried again", number=dropped)
        for target in targets:
            while True:
                with self.sql.writing():
                    one = self.table.claim_oldest(target.name, self.now(), HOLD_SECONDS)
                if one is None:
                    break
                message = Message(one.message, one.kind, one.severity, one.title, one.body)  # type: ignore[arg-type]
                if not self._record(target, message, self._attempt(target, message)):
                    self.retry_later(one.message)
                    break
                with self.sql.writing():
                    self.table.make_due(target.name, self.now())

    def _record(self, target: Target, message: Message, error: str | None) -> bool:
        with self.sql.writing():
            self.table.record(
                *(message.key, target.name),
                kind=message.kind,
                severity=message.severity,
                title=message.title,
                body=message.body,
                error=error,
                now=self.now(),
            )
            self.count("sent" if error is None else "failed")
        if error is None:
            log.info("notification sent", target=target.name, title=message.title)
        else:
            log.warning("notification could not be sent", target=target.name, title=message.title, error=error)
        return error is None

    def _attempt(self, target: Target, message: Message) -> str | None:
        """None: the target accepted it. The library's own error is dropped: it may contain a token."""
        title = message.title if message.kind == "notices" else f"{self.prefix}{message.title}"
        try:
            sent = self.post(target, title, message.body, message.severity)
        except CsiError as error:
            return str(error)
        return None if sent else notifications.NOT_ACCEPTED
