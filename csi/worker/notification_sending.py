"""Send a message to the notification targets, each of them once, and record the result of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from csi import notifications
from csi.errors import ConfigError
from csi.logs import log
from csi.notifications import Kind, Target
from csi.runtime import Runtime, notification_targets
from csi.store import counters, notification_log
from csi.store.db import writing

HOLD_SECONDS = 120.0
"""Until a message that could not be sent is tried again."""
RETRY_SECONDS = 86_400.0
"""A message that other targets have is tried for this long."""
MessageKind = Literal["alert", "resolved", "test", "weekly_test", "daily_summary"]
WAITS = "earlier messages to this target are tried again first"


@dataclass(frozen=True)
class Message:
    """`key` identifies it: a target that accepted a message of this key gets no second one."""

    key: str
    kind: MessageKind
    severity: Kind
    title: str
    body: str


def send(rt: Runtime, message: Message, to: Sequence[Target]) -> list[Target]:
    """The targets that have the message now. Where some do and some do not, it is tried again for the others."""
    accepted = [target for target in to if send_to(rt, target, message)]
    if accepted and len(accepted) < len(to):
        retry_later(rt, message.key)
    return accepted


def send_to(rt: Runtime, target: Target, message: Message) -> bool:
    """True when the target has the message, also from an earlier attempt. It waits behind messages that are retried."""
    if notification_log.has(message.key, target.name):
        return True
    waits = notification_log.waits(target.name)
    return _record(rt, target, message, WAITS if waits else _attempt(rt, target, message))


def retry_later(rt: Runtime, key: str) -> None:
    with writing():
        notification_log.retry_failed(key, rt.now() + HOLD_SECONDS)


def retry(rt: Runtime) -> None:
    """Send messages again that some targets have and others have not, to each target in order, until one fails."""
    with writing():
        dropped = notification_log.drop_older(rt.now() - RETRY_SECONDS)
    if dropped:
        log.warning("notifications are not tried again", number=dropped)
    for target in notification_targets(rt.settings):
        while _retry_oldest(rt, target):
            with writing():
                notification_log.make_due(target.name, rt.now())


def _retry_oldest(rt: Runtime, target: Target) -> bool:
    """True: the target accepted it, and the next one can be sent."""
    with writing():
        one = notification_log.claim_oldest(target.name, rt.now(), HOLD_SECONDS)
    if one is None:
        return False
    message = Message(one.message, one.kind, one.severity, one.title, one.body)  # type: ignore[arg-type]
    accepted = _record(rt, target, message, _attempt(rt, target, message))
    if not accepted:
        retry_later(rt, one.message)
    return accepted


def _record(rt: Runtime, target: Target, message: Message, error: str | None) -> bool:
    with writing():
        notification_log.record(
            *(message.key, target.name),
            kind=message.kind,
            severity=message.severity,
            title=message.title,
            body=message.body,
            error=error,
            now=rt.now(),
        )
        counters.add("notifications", label="sent" if error is None else "failed")
    if error is None:
        log.info("notification sent", target=target.name, title=message.title)
    else:
        log.warning("notification could not be sent", target=target.name, title=message.title, error=error)
    return error is None


def _attempt(rt: Runtime, target: Target, message: Message) -> str | None:
    """None: the target accepted it. The library's own error is dropped: it may contain a token."""
    title = f"CSI {rt.settings.csi.instance_id}: {message.title}"
    try:
        sent = notifications.send([target.url], title, message.body, message.severity)
    except ConfigError as error:
        return str(error)
    return None if sent else notifications.NOT_ACCEPTED
