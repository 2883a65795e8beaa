"""Send the notices of a window as one notification, to each target: through apprise, or to a file."""

import os

from csi import clock, notifications
from csi.errors import CsiError
from csi.notification_sending import Message, MessageSender
from csi.notifications import Kind, Target
from csi.processing.pipeline.operator_log import log_action
from csi.processing.runtime import Notifier, Processing
from csi.processing.store import audit, notices, notification_log
from csi.processing.store.db import sql_database, writing

PREFIX = "CSI processing: "


class NotificationError(CsiError):
    """The message could not be sent. Its notices stay stored and are sent later."""


def notify(rt: Processing) -> int:
    """Make one message of all waiting notices once the first one is due, and send it. Returns how many notices.

    The message is a row for each target before it is sent: a target that fails gets it again for a day, and the others
    do not. A crash between sending and the record of a target's acceptance sends it to this target again.
    """
    with writing():
        token, claimed = notices.claim(rt.now())
        if not claimed:
            return 0
        title, body = claimed[0].title, claimed[0].body
        if len(claimed) > 1:
            title = f"CSI: {len(claimed)} items"
            body = "\n\n".join(f"• {notice.title}\n{notice.body}".strip() for notice in claimed)
        message = Message(f"notices:{claimed[0].id}-{claimed[-1].id}", "notices", "info", title, body)
        for target in targets(rt):
            notification_log.table.queue(message, target.name, rt.now())
        notification_log.table.retry_failed(message.key, rt.now())
        notices.mark_sent(token, rt.now())
        scope = rt.audit_scope("notifier", "notification", None)
        audit.write(scope, "notify", "success", rt.now(), data_summary=f"{len(claimed)} lines")
    rt.failpoint("notify.committed")
    sender(rt).retry(targets(rt))
    return len(claimed)


def resend(rt: Processing, number: int) -> bool:
    """The worker sends this message to its target again. False: there is no such message."""
    with writing():
        is_known = notification_log.table.resend(number, rt.now())
        if is_known:
            log_action(rt, "notification_resend", f"message {number}", kind="notification", name=str(number))
        return is_known


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
