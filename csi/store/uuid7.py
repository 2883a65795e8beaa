"""UUID version 7 (RFC 9562): unique ids that grow with time, so that inserts go to the end of an index."""

import secrets
import threading
import uuid

_SEQUENCE = 2**26


class _Sequence:
    """Numbers the ids of one millisecond: the ids of one process sort in the order of creation."""

    def __init__(self) -> None:
        self._lock, self._stamp, self._number = threading.Lock(), -1, 0

    def next(self, stamp: int) -> int:
        with self._lock:
            self._number = (self._number + 1) % _SEQUENCE if stamp == self._stamp else 0
            self._stamp = stamp
            return self._number


_sequence = _Sequence()


def new_id(now: float) -> str:
    stamp = int(now * 1000) & (2**48 - 1)
    number = _sequence.next(stamp)
    low = (number % 2**14) << 48 | secrets.randbits(48)
    return str(uuid.UUID(int=stamp << 80 | 7 << 76 | (number >> 14) << 64 | 2 << 62 | low))
