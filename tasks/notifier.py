"""A thread beside the maintenance loop: it sends notifications and pings a heartbeat URL, however slow they are."""

import threading
import time
from collections.abc import Callable

from csi.logs import log
from csi.runtime import Runtime
from csi.store import db
from csi.worker import alerting

LOOK_SECONDS = 15.0
FRESH_SECONDS = 30.0
"""After this long without a pass of the maintenance loop the heartbeat URL is not pinged."""

_passed_at: list[float] = []


def note_pass() -> None:
    """The maintenance loop has finished a pass, and the consumer's threads make progress."""
    _passed_at[:] = [time.monotonic()]


def is_well() -> bool:
    return bool(_passed_at) and time.monotonic() - _passed_at[0] < FRESH_SECONDS


def watch(runtime: Callable[[], Runtime], stopping: threading.Event) -> None:
    next_ping = 0.0
    while not stopping.wait(LOOK_SECONDS if next_ping else 1.0):
        rt = runtime()
        try:
            alerting.look(rt)
        except Exception:  # noqa: BLE001 a database error or an error of the notification library
            log.exception("alerts could not be evaluated; retrying")
            db.drop_broken_connection()
        if time.monotonic() >= next_ping and is_well():
            alerting.ping(rt)
            next_ping = time.monotonic() + rt.settings.notify.heartbeat_seconds
