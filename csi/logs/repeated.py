"""Count errors that come again and again, so that each is logged once a minute with the number of times it came."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

REPEAT_SECONDS = 60.0
OVER_SECONDS = 15.0
"""An error that has not come for so long is over."""


@dataclass
class _Seen:
    began_at: float
    logged_at: float
    last_at: float
    repeated: int = 0


class RepeatedErrors:
    """The first error of a key is logged at once, the next ones are counted: a database that cannot be written fails
    hundreds of tasks a minute, all of them for one reason. Threads may share it."""

    def __init__(self, seconds: float = REPEAT_SECONDS, steady: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._steady = steady
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def count(self, key: str) -> dict[str, int] | None:
        """None: log nothing, it is counted. Otherwise log it, with these fields: `repeated` is how often it came since
        its last line."""
        now = self._steady()
        with self._lock:
            seen = self._seen.get(key)
            if seen is None:
                self._seen[key] = _Seen(now, now, now)
                return {}
            seen.repeated, seen.last_at = seen.repeated + 1, now
            if now - seen.logged_at < self._seconds:
                return None
            repeated, seen.repeated, seen.logged_at = seen.repeated, 0, now
            return {"repeated": repeated}

    def take_ended(self) -> dict[str, float]:
        """Errors that are over since the last call, and how many seconds each lasted."""
        now = self._steady()
        with self._lock:
            over = {key: seen for key, seen in self._seen.items() if now - seen.last_at > OVER_SECONDS}
            for key in over:
                del self._seen[key]
        return {key: seen.last_at - seen.began_at for key, seen in over.items()}
