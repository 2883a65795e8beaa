"""Where work is done by one thread at a time.

Python runs one thread at a time, and every call into SQLite gives way to another that wants to run: ten reads that come
in together hand the interpreter to and fro, which costs more than their work, and so do two threads that send to a
receiver that answers at once. At a desk they take turns. Nobody waits for the network, or for another lock than the
database's, while he has one.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_own = threading.local()


class Desk:
    """A place for one thread. Who has it may sit down again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        _desks().append(self)

    def __exit__(self, *_: object) -> None:
        _desks().pop()
        self._lock.release()


@contextmanager
def left() -> Iterator[None]:
    """Others may use this thread's desk while it waits for the network."""
    held = list(_desks())
    for desk in reversed(held):
        desk._lock.release()
    try:
        yield
    finally:
        for desk in held:
            desk._lock.acquire()


def _desks() -> list[Desk]:
    """Those that this thread has, in the order in which it took them."""
    if not hasattr(_own, "desks"):
        _own.desks = []
    found: list[Desk] = _own.desks
    return found


READING, SENDING = Desk(), Desk()
