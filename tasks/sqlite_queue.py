"""Huey's SQLite queue, tuned: wakes its workers at once, takes many messages in one commit, and heals itself.

The queue holds wake-ups only. When its file is deleted, replaced or corrupted, a new one is as good as the old.
"""

import errno
import heapq
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from huey.storage import SqliteStorage

from csi.logs import log
from csi.sql import create_private_file

AT_ONCE = 16
"""Messages taken from the file in one commit; what a crash loses of them, rescue finds again."""

IDLE_SECONDS = 0.5
"""How long an idle worker sleeps when nobody wakes it: another process may have put a message."""

LOOK_SECONDS = 1.0
"""Between two looks into a file that is known to be empty: every message comes from this process, and is known of."""

WAIT_SECONDS = 4.0
"""How long an idle thread sleeps when no message wakes it. One that another process put into the file waits as long."""

CHECK_SECONDS = 1.0
_TAKE = """
    delete from task where id in (select id from task where queue = ? order by priority desc, id limit ?)
    returning id, data, priority
"""
_PASSING = ("locked", "busy", "full", "interrupted")


class WakefulSqliteStorage(SqliteStorage):
    """The queue file of one worker process."""

    blocking = True  # dequeue waits by itself; Huey's workers need not sleep

    def __init__(self, name: str = "csi", **options: Any) -> None:
        self._arrival = threading.Condition()
        self._arrived = 0
        self._taking = threading.Lock()
        self._taken: list[tuple[float, int, bytes]] = []
        self._newest = -math.inf  # the highest priority put since the file was last looked at
        self._emptied = -math.inf  # when the file was last seen to be empty
        self._leaving = False
        self._checked = 0.0
        self._inode = 0
        try:
            super().__init__(name, **options)
        except sqlite3.DatabaseError as error:
            if _is_passing(error):
                raise
            self.initialize_schema()  # what was broken is set aside by now

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
        """The next message, or None after a while without one. Whoever comes between the look and the wait is seen."""
        seen = self._arrived
        data = self._next()
        if data is not None:
            return data
        with self._arrival:
            if self._leaving or (self._arrived == seen and not self._arrival.wait(WAIT_SECONDS)):
                return None
        return self._next()

    def let_go(self) -> None:
        """Nobody waits from here on: the process ends."""
        with self._arrival:
            self._leaving = True
            self._arrival.notify_all()

    def _next(self) -> bytes | None:
        """The most important message. One thread looks into the file for all; who comes next finds some at hand."""
        with self._taking:
            if self._is_worth_a_look():
                self._take_some()
            return heapq.heappop(self._taken)[2] if self._taken else None

    def _is_worth_a_look(self) -> bool:
        if self._taken:
            return -self._taken[0][0] < self._newest
        return self._newest > -math.inf or time.monotonic() - self._emptied >= LOOK_SECONDS

    def _take_some(self) -> None:
        self._newest = self._emptied = -math.inf
        if not self.sql("select 1 from task where queue = ? limit 1", (self.name,), results=True):
            self._emptied = time.monotonic()
            return  # an idle worker asks all the time: it must not write each time
        with self.db(commit=True) as cursor:
            cursor.execute(_TAKE, (self.name, AT_ONCE))
            found = cursor.fetchall()
        for number, data, priority in found:
            heapq.heappush(self._taken, (-(priority or 0), number, bytes(data)))

    def put_back(self) -> None:
        """What was taken and not handed out goes back into the file: nobody has to look for it after a restart."""
        with self._taking:
            messages, self._taken = [(data, -priority) for priority, _, data in sorted(self._taken)], []
        if messages:
            self.enqueue_many(messages)

    def read_schedule(self, ts: Any) -> list[bytes]:
        """Huey asks every second, and takes the writer's lock to do so: only where something is due."""
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
            self._heal(error)
            raise

    def _create_connection(self) -> sqlite3.Connection:
        if os.path.isdir(self.filename):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.filename)
        create_private_file(self.filename)
        connection: sqlite3.Connection = super()._create_connection()
        connection.execute("pragma synchronous=normal")  # wake-ups may be lost: the rows remain
        connection.execute("pragma journal_size_limit=16777216")
        self._inode = os.stat(self.filename).st_ino
        return connection

    def _follow_file(self) -> None:
        """An open connection goes on writing to a deleted file: notice that, and move to the new one."""
        if self._conn is None or time.monotonic() - self._checked < CHECK_SECONDS:
            return
        self._checked = time.monotonic()
        try:
            same = os.stat(self.filename).st_ino == self._inode
        except OSError:
            same = False
        if not same:
            log.warning("queue file was replaced; starting a new one", file=self.filename)
            self._start_over()

    def _heal(self, error: sqlite3.DatabaseError) -> None:
        if _is_passing(error) or os.path.isdir(self.filename):
            return
        aside = f"{self.filename}.broken-{int(time.time())}"
        log.error("queue file cannot be used; it is set aside", file=self.filename, aside=aside, error=str(error))
        try:
            os.replace(self.filename, aside)
        except OSError:
            log.warning("queue file is gone", file=self.filename)
        self._start_over()

    def _start_over(self) -> None:
        for suffix in ("-wal", "-shm"):
            if not os.path.exists(self.filename) and os.path.exists(self.filename + suffix):
                os.remove(self.filename + suffix)
        self.close()
        self._checked = time.monotonic()
        self.initialize_schema()


def _is_passing(error: sqlite3.DatabaseError) -> bool:
    return any(word in str(error) for word in _PASSING)
