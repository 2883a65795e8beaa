"""Slow down clients that guess tokens: after some wrong ones an address waits."""

import ipaddress
import time
from collections import deque
from collections.abc import Callable

GUESSES = 10
WINDOW_SECONDS = 60.0
LOCK_SECONDS = 60.0
MAX_ADDRESSES = 10_000


class GuessBrake:
    """Wrong tokens by address, in the memory of one process. While an address waits, right tokens are refused, too:
    otherwise it could keep guessing. Sessions that are signed in stay open. An IPv6 network of 64 bits counts as one
    address: who has one of its addresses can use all of them."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._wrong: dict[str, deque[float]] = {}

    def wait_seconds(self, address: str) -> int:
        """How long this address has to wait; 0: not at all."""
        wrong = self._wrong.get(_network_of(address))
        if wrong is None or len(wrong) < GUESSES or wrong[-1] - wrong[0] > WINDOW_SECONDS:
            return 0
        return max(0, int(wrong[-1] + LOCK_SECONDS - self._steady() + 0.999))

    def note_wrong(self, address: str) -> None:
        address = _network_of(address)
        if address not in self._wrong and len(self._wrong) >= MAX_ADDRESSES:
            self._wrong.pop(next(iter(self._wrong)))
        self._wrong.setdefault(address, deque(maxlen=GUESSES)).append(self._steady())


def _network_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped:
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))
