"""Notify the operator of processing's problems: once when one has lasted, once when it is over.

The worker does so, and the receiver that serves processing's pages: a dead worker cannot report itself. The rows of the
alerts decide which of the two sends a message.
"""

import threading
import time
from collections.abc import Iterable

from csi.alerts import AlertNotifier
from csi.errors import CsiError
from csi.logs import log
from csi.notification_sending import HOLD_SECONDS
from csi.notifications import Kind
from csi.problems import PASSING_SECONDS, to_notify
from csi.processing.pipeline.notify import PREFIX, notifiers, sender, targets
from csi.processing.problems import KINDS
from csi.processing.runtime import Processing
from csi.processing.status import problems
from csi.processing.store import alerts, db, mutes

CHECK_SECONDS = 5.0
LOG_SECONDS = 60.0


def check(rt: Processing, *, is_worker: bool) -> None:
    """Record which alerts began and ended, and notify the operator. The worker cannot judge its own heartbeat."""
    found = [problem for problem in to_notify(problems(rt)) if not (is_worker and problem.id == "processing_silent")]
    muted = {mute.problem for mute in mutes.active(rt.now())}

    def is_muted(name: str) -> bool:
        return None in muted or name in muted

    with db.writing():
        alerts.record(found, rt.now(), None, is_muted)
        due = alerts.claim_unnotified(rt.now(), HOLD_SECONDS, is_muted)
    public_url = (rt.settings.notifications.public_url or "").rstrip("/") or None
    notifier = AlertNotifier(alerts.table, sender(rt), KINDS, public_url, has_runbook=False)
    for alert in due:
        notifier.notify(alert, targets(rt))
    notifier.sender.retry(targets(rt))


def send(rt: Processing, title: str, body: str, kind: Kind, to: Iterable[str]) -> set[str]:
    """Without a row: the database cannot be used. Returns which of these targets have the message."""
    accepted = set()
    for name, notifier in notifiers(rt, kind).items():
        try:
            if name in to:
                notifier(f"{PREFIX}{title}", body)
                accepted.add(name)
        except CsiError as error:
            log.warning("notification could not be sent; it is retried", target=name, alert=title, error=str(error))
    return accepted


class AlertLoop:
    """Checks in a thread of its own: neither busy worker threads nor a slow notification service delay anything."""

    def __init__(self, rt: Processing, *, is_worker: bool) -> None:
        self._rt = rt
        self._is_worker = is_worker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ProcessingAlerts", daemon=True)
        self._unusable_since: float | None = None
        self._logged_at = float("-inf")
        self._told: set[str] = set()
        """The targets that know that the database cannot be used."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(CHECK_SECONDS)

    def check(self) -> None:
        try:
            with db.reading():
                check(self._rt, is_worker=self._is_worker)
        except CsiError as error:
            # The database cannot be used, so no row can remember the alert.
            now = self._rt.now()
            if self._unusable_since is None:
                self._unusable_since = now
            if time.monotonic() - self._logged_at >= LOG_SECONDS:
                self._logged_at = time.monotonic()
                log.error("processing's database cannot be used; its problems are not recorded", error=str(error))
            if now - self._unusable_since >= PASSING_SECONDS:
                body = f"{error}; nothing is processed.\nWhat to do: `csi processing status` names the cause"
                missing = notifiers(self._rt).keys() - self._told
                self._told |= send(self._rt, "the database cannot be used", body, "failure", missing)
        else:
            if self._unusable_since is not None and self._told:
                minutes = (self._rt.now() - self._unusable_since) / 60
                body = f"It failed for {minutes:.0f} minutes."
                self._told -= send(self._rt, "the database can be used again", body, "success", self._told)
            if not self._told:
                self._unusable_since = None

    def _run(self) -> None:
        while not self._stopping.wait(CHECK_SECONDS):
            try:
                self.check()
            except Exception as error:  # noqa: BLE001 the edge of the thread: the next check may succeed
                log.exception("check of processing failed", error=f"{type(error).__name__}: {error}"[:300])
