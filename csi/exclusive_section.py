"""Exclusive sections: locks that serialize CPU-bound work of threads.

Python runs one thread at a time, and every call into SQLite lets another thread run: ten reads that come in together
hand the interpreter back and forth, which costs more than their work, and so do two threads that send to a receiver
that answers at once. Inside a section they run one after the other. No thread waits for the network, or for another
lock than the database's, while it is in a section.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_own = threading.local()


class ExclusiveSection:
    """One thread at a time. The thread that is inside may enter again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        _entered().append(self)

    def __exit__(self, *_: object) -> None:
        _entered().pop()
        self._lock.release()


@contextmanager
def released() -> Iterator[None]:
    """Other threads may enter the sections of this thread while it waits for the network."""
    sections = list(_entered())
    for section in reversed(sections):
        section._lock.release()
    try:
        yield
    finally:
        for section in sections:
            section._lock.acquire()


def _entered() -> list[ExclusiveSection]:
    """The sections that this thread is in, in the order in which it entered them."""
    if not hasattr(_own, "sections"):
        _own.sections = []
    found: list[ExclusiveSection] = _own.sections
    return found


POLL_SECTION, DELIVERY_SECTION = ExclusiveSection(), ExclusiveSection()
