"""Send the notices of a window as one notification, to each target: through apprise, or to a file."""

import os

from csi import clock, notifications
from csi.errors import CsiError
from csi.logs import log
from csi.notification_sending import Message, MessageSender
from csi.notifications import Kind, Target
from csi.processing.runtime import Notifier, Processing
from csi.processing.store import audit, notices, notification_log
from csi.processing.store.db import sql_database, writing

ATTEMPTS = 5
RETRY_SECONDS = 60.0
PREFIX = "CSI processing: "


class NotificationError(CsiError):
    """The message could not be sent. Its notices stay stored and are sent later."""


def notify(rt: Processing) -> int:
    """Send all waiting notices once the first one is due. Returns how many were sent.

    A crash between sending and the record of a target's acceptance sends them again: a duplicate is better than a lost
    notification.
    """
    with writing():
        token, claimed = notices.claim(rt.now())
    if not claimed:
        return 0
    title, body = claimed[0].title, claimed[0].body
    if len(claimed) > 1:
        title = f"CSI: {len(claimed)} items"
        body = "\n\n".join(f"• {notice.title}\n{notice.body}".strip() for notice in claimed)
    # Claimed again with younger ones, it is another message: no target has accepted any of these notices then.
    key = f"notices:{claimed[0].id}-{claimed[-1].id}"
    if not sender(rt).send(Message(key, "notices", "info", title, body), targets(rt)):
        failed = [notice.id for notice in claimed if notice.attempts >= ATTEMPTS]
        again = [notice.id for notice in claimed if notice.attempts < ATTEMPTS]
        with writing():
            if again:
                notices.release(token, again, rt.now() + RETRY_SECONDS)
            if failed:
                notices.give_up(token, failed)
        log.warning("notification not sent", lines=len(claimed), given_up=len(failed))
        return 0
    rt.failpoint("notify.sent")
    with writing():
        notices.mark_sent(token, rt.now())
        scope = rt.audit_scope("notifier", "notification", None)
        audit.write(scope, "notify", "success", rt.now(), data_summary=f"{len(claimed)} lines")
    log.info("notification sent", lines=len(claimed))
    return len(claimed)


def sender(rt: Processing) -> MessageSender:
    """Records what each target accepted: one that fails does not repeat messages to the others."""

    def post(target: Target, title: str, body: str, kind: Kind) -> bool:
        notifiers(rt, kind)[target.name](title, body)
        return True

    return MessageSender(sql_database, notification_log.table, rt.now, PREFIX, post)


def targets(rt: Processing) -> list[Target]:
    return [Target(name, "") for name in notifiers(rt)]


def notifiers(rt: Processing, kind: Kind = "info") -> dict[str, Notifier]:
    """By target. Each raises NotificationError where its target does not accept the message."""
    if rt.notifiers is not None:
        return {f"notifier {number}": notifier for number, notifier in enumerate(rt.notifiers, 1)}

    def by_apprise(target: Target) -> Notifier:
        def send(title: str, body: str) -> None:
            if not notifications.send([target.url], title, body, kind):
                raise NotificationError(notifications.NOT_ACCEPTED)

        return send

    def append_to_file(title: str, body: str) -> None:
        path, flags = rt.settings.notice_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
                file.write(f"## {title}\n\n{clock.iso(clock.now())}\n\n{body}\n\n")
        except OSError as error:
            raise NotificationError(f"{path}: cannot be written: {error.strerror}") from error

    found = {target.name: by_apprise(target) for target in notifications.targets_of(rt.secrets.notify_urls)}
    return found or {"file": append_to_file}
