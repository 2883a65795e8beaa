"""The place where a SQLite database lies: how much room is left, whether it may be written, how long its log is."""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from csi.errors import StoreError
from csi.store.db import is_postgres
from csi.store.models import database

MB = 1_048_576
LOCK_SECONDS = 1.0
SHORTEN_SECONDS = 0.2
"""How long writers may have to wait for readers to leave."""


@dataclass(frozen=True)
class DiskSpace:
    """In bytes."""

    free: int
    log: int
    """The write-ahead log. It cannot be shortened while somebody reads an old state of the database."""
    is_read_only: bool


def measure() -> DiskSpace | None:
    """None: the database is a server, and its room is the server's business."""
    return None if is_postgres() else measure_at(Path(database.database))


def measure_at(path: Path) -> DiskSpace:
    try:
        disk = os.statvfs(path.parent)
    except OSError as error:
        raise StoreError(f"the directory {path.parent} cannot be looked at: {error.strerror}") from error
    read_only = bool(disk.f_flag & os.ST_RDONLY) or (path.exists() and not os.access(path, os.W_OK))
    return DiskSpace(disk.f_bavail * disk.f_frsize, _size(Path(f"{path}-wal")), read_only)


def check_write_lock(path: Path, seconds: float = LOCK_SECONDS) -> None:
    """Take the writer's lock and give it back. StoreError when that cannot be done: locked, read-only, damaged."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=seconds)) as connection:
            connection.isolation_level = None
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise StoreError(f"the database cannot be written: {error}") from error


def truncate_wal(path: Path, seconds: float = SHORTEN_SECONDS) -> bool:
    """Write the log into the database and empty it. False: somebody reads an old state, or is writing right now."""
    with closing(sqlite3.connect(path, timeout=seconds)) as connection:
        try:
            ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError:
            return False
    return not busy


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
