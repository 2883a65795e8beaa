"""Collated notifications: what was collected in the window goes out as one message, through apprise or to a file."""

import os
from pathlib import Path

from csi import clock, messages
from csi.errors import CsiError
from csi.logs import log
from csi.processing.runtime import Notifier, Processing
from csi.processing.store import audit, notices
from csi.processing.store.db import writing
from csi.processing.store.notices import Notice

ATTEMPTS = 5
WAIT = 60.0


class NotSent(CsiError):
    """The message did not get out. It is tried again; nothing of it is lost meanwhile."""


def notify(rt: Processing) -> int:
    """Send everything that waits, once the first of it is due. Returns how many lines went out.

    A crash between the sending and the commit sends it again: told twice is better than never.
    """
    with writing():
        token, found = notices.claim(rt.now())
    if not found:
        return 0
    title, body = collate(found)
    try:
        for send in rt.notifiers if rt.notifiers is not None else _notifiers(rt):
            send(title, body)
    except CsiError as error:
        _put_back(rt, token, found, error)
        return 0
    rt.failpoint("notify.sent")
    with writing():
        notices.sent(token, rt.now())
        scope = audit.Scope("notifier", None, "notification", None, rt.settings.retention.audit_days)
        audit.write(scope, "notify", "success", rt.now(), data_summary=f"{len(found)} lines")
    log.info("notification sent", lines=len(found))
    return len(found)


def collate(found: list[Notice]) -> tuple[str, str]:
    """One message: a single notice as it is, several as a list."""
    if len(found) == 1:
        return found[0].title, found[0].body
    lines = [f"• {notice.title}\n{notice.body}".strip() for notice in found]
    return f"CSI: {len(found)} items", "\n\n".join(lines)


def _put_back(rt: Processing, token: str, found: list[Notice], error: CsiError) -> None:
    tired = [notice.id for notice in found if notice.attempts >= ATTEMPTS]
    again = [notice.id for notice in found if notice.attempts < ATTEMPTS]
    with writing():
        if again:
            notices.put_back(token, again, rt.now() + WAIT)
        if tired:
            notices.give_up(token, tired)
    log.warning("notification not sent", lines=len(found), given_up=len(tired), error=str(error))


def _notifiers(rt: Processing) -> list[Notifier]:
    if rt.secrets.notify_urls:
        return [_by_apprise(rt.secrets.notify_urls)]
    return [_to_file(rt.settings.notice_file)]


def _by_apprise(urls: tuple[str, ...]) -> Notifier:
    def send(title: str, body: str) -> None:
        if not messages.send(urls, title, body):
            raise NotSent("apprise could not deliver it to every address")

    return send


def _to_file(path: Path) -> Notifier:
    def send(title: str, body: str) -> None:
        text = f"## {title}\n\n{clock.iso(clock.now())}\n\n{body}\n\n"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise NotSent(f"{path}: cannot be written: {error.strerror}") from error

    return send
