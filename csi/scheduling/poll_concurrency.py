"""The slots of one process for reading sources. Without a free slot a watch waits in line: urgent first, then oldest.

Only in memory: a watch that waits here is due in its row all the same, and the maintenance loop wakes it again.
"""

import heapq
import threading
from collections import Counter

WaitingWatch = tuple[bool, float, int]
"""Sorts in the order in which watches are called: not urgent, due since, id."""


class PollSlots:
    """No host gets all of the slots: one that hangs leaves some for the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: Counter[str] = Counter()
        self._lines: dict[str, list[WaitingWatch]] = {}
        self._waiting: set[int] = set()
        self._limits: dict[str, int] = {}

    def acquire(
        self, watch_id: int, host: str, slots: int, *, urgent: bool, due_at: float, limit: int | None = None
    ) -> bool:
        """False: no slot is free, and the watch waits in line now. `limit`: slots that this host may use at once."""
        with self._lock:
            if limit is not None:
                self._limits[host] = limit
            if self._has_room(host, slots):
                self._used[host] += 1
                return True
            if watch_id not in self._waiting:
                self._waiting.add(watch_id)
                heapq.heappush(self._lines.setdefault(host, []), (not urgent, due_at, watch_id))
            return False

    def release(self, host: str) -> None:
        with self._lock:
            self._used[host] -= 1
            self._used += Counter()  # drops hosts without a used slot

    def call_next(self, slots: int) -> int | None:
        """The next watch in line whose host has a free slot. None: there is none."""
        with self._lock:
            able = [(line[0], host) for host, line in self._lines.items() if self._has_room(host, slots)]
            if not able:
                return None
            (_, _, watch_id), host = min(able)
            heapq.heappop(self._lines[host])
            if not self._lines[host]:
                del self._lines[host]
            self._waiting.discard(watch_id)
            return watch_id

    def has_line(self) -> bool:
        """Whether a watch waits for a slot."""
        return bool(self._waiting)

    def _has_room(self, host: str, slots: int) -> bool:
        most = min(max(slots - max(slots // 6, 1), 1), self._limits.get(host, slots))
        return self._used.total() < slots and self._used[host] < most
