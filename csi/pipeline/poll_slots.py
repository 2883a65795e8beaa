"""Whose turn it is when all places for reading are taken: the urgent first, then who waited longest.

Only in memory: a watch that waits here is due in its row all the same, and is woken again after REWAKE_SECONDS.
"""

import heapq
import threading
from collections import Counter
from typing import cast

from csi.pipeline.wake import Wake
from csi.runtime import Runtime
from csi.store import watches
from csi.store.watches import Glance

Place = tuple[bool, float, int]
"""In the order in which they are called: not urgent, due since, id."""


class Turns:
    """Places of one process. Each host has most of them at most: one that hangs leaves some for the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._lines: dict[str, list[Place]] = {}
        self._waiting: set[int] = set()

    def take(self, watch: Glance, host: str, places: int) -> bool:
        """False: all places are taken, and it stands in line now."""
        with self._lock:
            if self._has_room(host, places):
                self._taken[host] += 1
                return True
            if watch.id not in self._waiting:
                self._waiting.add(watch.id)
                heapq.heappush(self._lines.setdefault(host, []), (watch.tier != "urgent", watch.next_poll_at, watch.id))
            return False

    def leave(self, host: str) -> None:
        with self._lock:
            self._taken[host] -= 1
            self._taken += Counter()  # forgets hosts that nobody reads

    def call(self, places: int) -> int | None:
        """The next in line whose host has room. None: nobody waits, or nobody can go."""
        with self._lock:
            able = [(line[0], host) for host, line in self._lines.items() if self._has_room(host, places)]
            if not able:
                return None
            (_, _, watch_id), host = min(able)
            heapq.heappop(self._lines[host])
            if not self._lines[host]:
                del self._lines[host]
            self._waiting.discard(watch_id)
            return watch_id

    def _has_room(self, host: str, places: int) -> bool:
        most = max(places - max(places // 6, 1), 1)
        return self._taken.total() < places and self._taken[host] < most


def take(rt: Runtime, watch: Glance, host: str, now: float) -> bool:
    """False: it waits for its turn, and `call_next` or, at the latest, the pulse wakes it."""
    if _turns(rt).take(watch, host, rt.share.polls):
        return True
    if watch.wake_at < now + watches.REWAKE_SECONDS / 2:  # who was just woken is not woken again for a while
        watches.wake_again(watch.id, now + watches.REWAKE_SECONDS)
    return False


def leave(rt: Runtime, host: str) -> None:
    _turns(rt).leave(host)


def call_next(rt: Runtime) -> list[Wake]:
    watch_id = _turns(rt).call(rt.share.polls)
    return [] if watch_id is None else [Wake("poll", watch_id)]


def _turns(rt: Runtime) -> Turns:
    return cast(Turns, rt.memo.setdefault("turns", Turns()))
