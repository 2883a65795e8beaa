"""Paces requests to hosts: a slot is reserved in the database before each request, and answers teach the spacing.

The row in `host_pacing` remembers the next free slot, so that worker, sidecar and commands share it and a restart does
not forget it. A slot that was reserved by a process that died passes unused.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from csi.config.settings import HostSettings
from csi.errors import NetError
from csi.scheduling import host_pacing as rules
from csi.scheduling import watch_health
from csi.scheduling.host_pacing import Pace
from csi.store import db, host_pacing

AGREE_SECONDS = 3600.0
"""How long the last answer of a URL says something of its host."""
MOST_URLS = 2_000
SHORT_WAIT = 3.0
"""A request outside of a poll waits this long for its slot; if the slot is later, the request is not sent."""


_permits = threading.local()
"""The permit of each thread, whichever pacer asks for it: sources are read over two clients, each with its own."""


class HostPacer:
    """The pacing of one process. `learns_by_default`: hosts that the configuration does not name are paced, too, once
    they refused a request."""

    def __init__(
        self,
        configured: Mapping[str, HostSettings],
        now: Callable[[], float],
        rng: random.Random,
        *,
        learns_by_default: bool = True,
    ) -> None:
        self._configured, self._now, self._rng = configured, now, rng
        self._learns = learns_by_default
        self._lock = threading.Lock()
        self._answers: dict[str, dict[int, tuple[float, bool]]] = {}
        """By host and URL (its hash: it may hold a key), when it was answered last, and whether by a refusal."""

    def pace(self, host: str) -> Pace:
        return rules.pace_of(host, self._configured)

    def spacing(self, host: str) -> float:
        """The seconds between two requests now: configured, or wider where that was learned."""
        pace = self.pace(host)
        row = host_pacing.find(pace.name) if pace.learns and _has_database() else None
        return max(pace.spacing, (row.spacing or 0.0) if row else 0.0)

    def reserve(self, host: str) -> float | None:
        """Reserve the next slot of this host. Returns when it begins. None: its requests are not spaced."""
        spacing = self.spacing(host)
        if spacing <= 0 or not _has_database():
            return None
        step = spacing * (1.0 + rules.JITTER * self._rng.random())
        return host_pacing.reserve(self.pace(host).name, step, self._now())

    @contextmanager
    def permitted(self, host: str) -> Iterator[None]:
        """The first request to this host inside uses a slot that is reserved already."""
        _permits.name = self.pace(host).name
        try:
            yield
        finally:
            _permits.name = None

    def before(self, host: str) -> None:
        """Called before each request. NetError (paced) when its slot is not soon."""
        pace = self.pace(host)
        if getattr(_permits, "name", None) == pace.name:
            _permits.name = None
            return
        if not self._applies(pace):
            return
        row, now = host_pacing.find(pace.name), self._now()
        wait = row.next_at - now if row is not None and row.next_at <= now + host_pacing.LONGEST_AHEAD else 0.0
        if max(pace.spacing, (row.spacing or 0.0) if row else 0.0) <= 0:
            return
        if wait > SHORT_WAIT:
            reason = f"{pace.name}: the next request is allowed in {round(wait)} s (net.hosts)"
            raise NetError(reason, kind="paced", sent=False, retry_after=wait)
        at = self.reserve(host)
        if at is not None and at > now:
            time.sleep(min(at - now, SHORT_WAIT))

    def after(self, host: str, status: int, headers: Mapping[str, str], url: str) -> None:
        """Called with each answer: a refusal widens the spacing, a success narrows it slowly. Where no spacing is
        configured, only refusals of several URLs count: one feed that is always refused must not slow down the others
        of its host."""
        pace = self.pace(host)
        if not pace.learns or not self._applies(pace):
            return
        now, refused = self._now(), rules.is_refusal(status, pace.spacing)
        if pace.spacing <= 0 and not self._note_answer(pace.name, url, now, refused=refused):
            return
        hold = rules.hold_seconds(headers, pace.spacing, now, refused=refused)
        if hold is not None and (pace.spacing > 0 or refused):
            host_pacing.hold(pace.name, now + hold)
        row = host_pacing.find(pace.name)
        learned = row.spacing if row is not None else None
        current = max(learned or 0.0, pace.spacing)
        if refused:
            again = row is not None and row.throttled_at is not None
            if again and row is not None and 0 <= now - (row.throttled_at or 0.0) < rules.WIDEN_EVERY:
                return
            host_pacing.learn(pace.name, rules.widened(current, pace.spacing), status, now, throttled=True)
        elif learned is not None and status < 500:
            narrower = rules.narrowed(learned, pace.spacing)
            host_pacing.learn(pace.name, narrower, status, now, throttled=False)

    def _note_answer(self, name: str, url: str, now: float, *, refused: bool) -> bool:
        """Whether this answer says something about its host: of refusals, those of many of its URLs."""
        with self._lock:
            answers = self._answers.setdefault(name, {})
            answers.pop(hash(url), None)
            answers[hash(url)] = (now, refused)
            # The oldest come first.
            while len(answers) > MOST_URLS or not 0 <= now - next(iter(answers.values()))[0] < AGREE_SECONDS:
                del answers[next(iter(answers))]
            return not refused or sum(bad for _, bad in answers.values()) >= watch_health.threshold(len(answers))

    def _applies(self, pace: Pace) -> bool:
        named = pace.name in self._configured or pace.name in rules.DEFAULTS
        return (named or self._learns) and (pace.spacing > 0 or pace.learns) and _has_database()


def _has_database() -> bool:
    """False in commands that work without one, such as `csi config check` and `csi init`."""
    return db.database.obj is not None
