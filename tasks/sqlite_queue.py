"""Huey's SQLite queue: a new message wakes a thread at once, many share one commit, a broken file is replaced.

The queue holds wake-ups only. When its file is deleted, replaced or corrupted, the maintenance loop fills a new one.
"""

import errno
import heapq
import math
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from huey.storage import SqliteStorage

from csi.logs import log
from csi.sql import create_private_file

AT_ONCE = 16
"""Messages taken from the file in one commit. After a crash the maintenance loop enqueues the lost ones again."""

IDLE_SECONDS = 0.5
"""The longest sleep of a thread after the queue could not be read: all three storages block in `dequeue`."""

EMPTY_FILE_READ_SECONDS = 1.0
"""Between two reads of a file that was empty. Messages of this process are known without a read."""

WAIT_SECONDS = 4.0
"""How long an idle thread sleeps when no message wakes it; a message of another process waits at most this long."""

CHECK_SECONDS = 1.0
_TAKE = """
    delete from task where id in (select id from task where queue = ? order by priority desc, id limit ?)
    returning id, data, priority
"""
BROKEN_SECONDS = 5.0
"""A file that gives I/O errors for this long while another file of its directory can be written is broken itself."""

_TEMPORARY = ("locked", "busy", "full", "interrupted")


class SqliteQueueStorage(SqliteStorage):
    """The queue file of one worker process."""

    blocking = True  # dequeue waits for a message; Huey's worker threads need not sleep

    def __init__(self, name: str = "csi", **options: Any) -> None:
        self._arrival = threading.Condition()
        self._arrived = 0
        self._taking = threading.Lock()
        self._taken: list[tuple[float, int, bytes]] = []
        self._newest = -math.inf  # the highest priority enqueued since the last read of the file
        self._emptied = -math.inf  # when a read last found the file empty
        self._stopping = False
        self._checked = 0.0
        self._inode = 0
        self._failing_since: float | None = None
        self._is_replacing = False
        try:
            super().__init__(name, **options)
        except sqlite3.DatabaseError as error:
            if _is_temporary(error) or _is_io_error(error):
                raise
            self.initialize_schema()  # _handle_error has renamed the broken file

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        self.enqueue_many([(data, priority or 0)])

    def enqueue_many(self, messages: Sequence[tuple[bytes, float]]) -> None:
        """All or none, in one commit."""
        rows = [(self.name, self.to_blob(data), priority) for data, priority in messages]
        with self.db(commit=True) as cursor:
            cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)
        with self._arrival:
            self._arrived += 1
            self._newest = max(self._newest, *(priority for _, priority in messages))
            self._arrival.notify(len(rows))

    def dequeue(self) -> bytes | None:
        """The next message, or None after WAIT_SECONDS without one."""
        seen = self._arrived  # read first: a message that arrives before the wait changes it
        data = self._next()
        if data is not None:
            return data
        with self._arrival:
            if self._stopping or (self._arrived == seen and not self._arrival.wait(WAIT_SECONDS)):
                return None
        return self._next()

    def stop_blocking(self) -> None:
        """The process ends: waiting threads return, and `dequeue` does not wait again."""
        with self._arrival:
            self._stopping = True
            self._arrival.notify_all()

    def _next(self) -> bytes | None:
        """The message of the highest priority. One thread reads up to AT_ONCE of them for all threads."""
        with self._taking:
            if self._taken:
                must_read_file = -self._taken[0][0] < self._newest
            else:
                must_read_file = self._newest > -math.inf or time.monotonic() - self._emptied >= EMPTY_FILE_READ_SECONDS
            if must_read_file:
                self._read_file()
            return heapq.heappop(self._taken)[2] if self._taken else None

    def _read_file(self) -> None:
        self._newest = self._emptied = -math.inf
        if not self.sql("select 1 from task where queue = ? limit 1", (self.name,), results=True):
            self._emptied = time.monotonic()
            return  # the DELETE below takes the write lock, which an idle worker must not do every second
        with self.db(commit=True) as cursor:
            cursor.execute(_TAKE, (self.name, AT_ONCE))
            found = cursor.fetchall()
        for number, data, priority in found:
            # Another program may have written any type into both columns. An empty message is dropped.
            rank = float(priority) if isinstance(priority, int | float) else 0.0
            heapq.heappush(self._taken, (-rank, number, data if isinstance(data, bytes) else b""))

    def return_taken(self) -> None:
        """Write the messages that no thread has begun back into the file, for the next start."""
        with self._taking:
            messages, self._taken = [(data, -priority) for priority, _, data in sorted(self._taken)], []
        if messages:
            self.enqueue_many(messages)

    def read_schedule(self, ts: Any) -> list[bytes]:
        """Huey's own method takes the write lock at every call; here only when a message is due."""
        due = "select 1 from schedule where queue = ? and timestamp <= ? limit 1"
        if not self.sql(due, (self.name, ts.timestamp()), results=True):
            return []
        return list(super().read_schedule(ts))

    def queue_size(self) -> int:
        return int(super().queue_size()) + len(self._taken)

    @contextmanager
    def db(self, commit: bool = False, close: bool = False) -> Iterator[Any]:
        self._follow_file()
        try:
            with super().db(commit=commit, close=close) as cursor:
                yield cursor
        except sqlite3.DatabaseError as error:
            if not self._is_replacing:
                self._handle_error(error)
            raise
        self._failing_since = None

    def _create_connection(self) -> sqlite3.Connection:
        if os.path.isdir(self.filename):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.filename)
        create_private_file(self.filename)
        connection: sqlite3.Connection = super()._create_connection()
        connection.execute("pragma synchronous=normal")  # a power failure may lose wake-ups; the rows remain
        connection.execute("pragma journal_size_limit=16777216")
        self._inode = os.stat(self.filename).st_ino
        return connection

    def _follow_file(self) -> None:
        """An open connection would write to a deleted file: compare the inode, and open the new file."""
        if self._conn is None or time.monotonic() - self._checked < CHECK_SECONDS:
            return
        self._checked = time.monotonic()
        try:
            same = os.stat(self.filename).st_ino == self._inode
        except OSError:
            same = False
        if not same:
            log.warning("queue file was replaced or deleted; opening a new one", file=self.filename)
            self._open_new_file()

    def _handle_error(self, error: sqlite3.DatabaseError) -> None:
        if _is_temporary(error) or os.path.isdir(self.filename):
            return
        if _is_io_error(error) and not self._is_file_broken():
            self.close()  # a file that was cut or removed under its connection is opened again
            return
        aside = f"{self.filename}.broken-{int(time.time())}"
        log.error("queue file is broken; replacing it", file=self.filename, aside=aside, error=str(error))
        try:
            os.replace(self.filename, aside)
        except OSError:
            log.warning("queue file does not exist; a new one is created", file=self.filename)
        self._open_new_file()

    def _is_file_broken(self) -> bool:
        """A failing disk gives the same errors, and a new file would not help."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since < BROKEN_SECONDS:
            return False
        try:
            with tempfile.TemporaryFile(dir=os.path.dirname(self.filename)) as file:
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return False
        return True

    def _open_new_file(self) -> None:
        for suffix in ("-wal", "-shm"):
            if not os.path.exists(self.filename) and os.path.exists(self.filename + suffix):
                os.remove(self.filename + suffix)
        self.close()
        self._checked = time.monotonic()
        self._is_replacing = True  # an error of the new file must not replace it again, and again
        try:
            self.initialize_schema()
        finally:
            self._is_replacing = False


def _is_temporary(error: sqlite3.DatabaseError) -> bool:
    return any(word in str(error) for word in _TEMPORARY)


def _is_io_error(error: sqlite3.DatabaseError) -> bool:
    return "disk I/O error" in str(error)
