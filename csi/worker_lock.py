"""One worker per SQLite state directory, by flock: the kernel releases it however the process ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from csi.errors import AlreadyRunning, StoreError
from csi.sql import open_private_file, unlockable

LOCK_FILE = "worker.lock"
TRIES = 20
"""Within a second: `lock_holder` takes the lock for a moment."""

_held: list[TextIO] = []  # an open file keeps its lock; the garbage collector would close it


def hold_worker_lock(state_dir: Path) -> None:
    """Lock the directory until this process ends. AlreadyRunning when another worker holds the lock."""
    handle = _lock(state_dir, "stop it, or give this one its own csi.state_dir")
    handle.seek(0)
    handle.truncate()
    handle.write(f"{os.getpid()}\n")
    handle.flush()
    _held.append(handle)


@contextmanager
def without_worker(state_dir: Path, remedy: str) -> Iterator[None]:
    """Inside, no worker runs here and none can start. AlreadyRunning when one runs; `remedy` ends its message."""
    with _lock(state_dir, remedy):
        yield


def lock_holder(state_dir: Path) -> int | None:
    """The process that works in this directory; 0: one does, and its number is not known. None: no process does."""
    try:
        with (state_dir / LOCK_FILE).open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = handle.read(20).strip()
                return int(text) if text.isdigit() else 0
    except OSError:
        pass  # no worker has ever run here, or this user may not read the file
    return None


def _lock(state_dir: Path, remedy: str) -> TextIO:
    path = state_dir / LOCK_FILE
    try:
        handle = open_private_file(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        _take(handle)
    except BlockingIOError as error:
        handle.seek(0)
        holder = handle.read(20).strip() or "unknown"
        handle.close()
        raise AlreadyRunning(f"another worker (process {holder}) works in {state_dir}; {remedy}") from error
    except OSError as error:
        handle.close()
        raise StoreError(unlockable(path, error)) from error
    return handle


def _take(handle: TextIO) -> None:
    for left in reversed(range(TRIES)):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            time.sleep(0.05)
        else:
            return
