"""Send the notices of a window as one notification, through apprise or to a file."""

import os

from csi import clock, notifications
from csi.errors import CsiError
from csi.logs import log
from csi.notifications import Kind
from csi.processing.runtime import Notifier, Processing
from csi.processing.store import audit, notices
from csi.processing.store.db import writing

ATTEMPTS = 5
RETRY_SECONDS = 60.0


class NotificationError(CsiError):
    """The message could not be sent. Its notices stay stored and are sent later."""


def notify(rt: Processing) -> int:
    """Send all waiting notices once the first one is due. Returns how many were sent.

    A crash between sending and commit sends them again: a duplicate is better than a lost notification.
    """
    with writing():
        token, claimed = notices.claim(rt.now())
    if not claimed:
        return 0
    title, body = claimed[0].title, claimed[0].body
    if len(claimed) > 1:
        title = f"CSI: {len(claimed)} items"
        body = "\n\n".join(f"• {notice.title}\n{notice.body}".strip() for notice in claimed)
    try:
        for send in rt.notifiers if rt.notifiers is not None else [configured_notifier(rt)]:
            send(title, body)
    except CsiError as error:
        failed = [notice.id for notice in claimed if notice.attempts >= ATTEMPTS]
        again = [notice.id for notice in claimed if notice.attempts < ATTEMPTS]
        with writing():
            if again:
                notices.release(token, again, rt.now() + RETRY_SECONDS)
            if failed:
                notices.give_up(token, failed)
        log.warning("notification not sent", lines=len(claimed), given_up=len(failed), error=str(error))
        return 0
    rt.failpoint("notify.sent")
    with writing():
        notices.mark_sent(token, rt.now())
        scope = rt.audit_scope("notifier", "notification", None)
        audit.write(scope, "notify", "success", rt.now(), data_summary=f"{len(claimed)} lines")
    log.info("notification sent", lines=len(claimed))
    return len(claimed)


def configured_notifier(rt: Processing, kind: Kind = "info") -> Notifier:
    def send_by_apprise(title: str, body: str) -> None:
        if not notifications.send(rt.secrets.notify_urls, title, body, kind):
            raise NotificationError("apprise could not deliver the message to every URL")

    def append_to_file(title: str, body: str) -> None:
        path, flags = rt.settings.notice_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
                file.write(f"## {title}\n\n{clock.iso(clock.now())}\n\n{body}\n\n")
        except OSError as error:
            raise NotificationError(f"{path}: cannot be written: {error.strerror}") from error

    return send_by_apprise if rt.secrets.notify_urls else append_to_file
