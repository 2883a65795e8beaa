"""The file system below a SQLite database: free space, write access, size of the write-ahead log."""

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
"""How long other writers may be blocked while the checkpoint waits for readers."""

LONG_LOG = 64 * MB
"""A write-ahead log of this size does not shrink because another process reads an old state of the database."""


@dataclass(frozen=True)
class DiskSpace:
    """Sizes in bytes."""

    free: int
    log: int
    """The write-ahead log. SQLite cannot truncate it while a connection reads an older state of the database."""
    is_read_only: bool


def measure() -> DiskSpace | None:
    """None on PostgreSQL: the disk belongs to the server."""
    return None if is_postgres() else measure_at(Path(database.database))


def measure_at(path: Path) -> DiskSpace:
    try:
        disk = os.statvfs(path.parent)
    except OSError as error:
        raise StoreError(f"the directory {path.parent} cannot be read: {error.strerror}") from error
    read_only = bool(disk.f_flag & os.ST_RDONLY) or (path.exists() and not os.access(path, os.W_OK))
    try:
        wal = Path(f"{path}-wal").stat().st_size
    except OSError:
        wal = 0  # no connection is open, or the last one has just deleted it
    return DiskSpace(disk.f_bavail * disk.f_frsize, wal, read_only)


def nearly_full(found: DiskSpace, wanted_mb: int) -> str:
    free = found.free // MB
    return f"the disk is nearly full ({free} MB free, {wanted_mb} MB required); polling stops until space is free"


def long_reader(found: DiskSpace) -> str:
    return f"another process keeps reading an old state: the write-ahead log has {found.log // MB} MB and cannot shrink"


def check_write_lock(path: Path, seconds: float = LOCK_SECONDS) -> None:
    """Take SQLite's write lock and release it. StoreError when that fails: locked, read-only, damaged."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=seconds)) as connection:
            connection.isolation_level = None
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise StoreError(f"the database cannot be written: {error}") from error


def truncate_wal(path: Path, seconds: float = SHORTEN_SECONDS) -> bool:
    """Checkpoint the write-ahead log and truncate it. False: a connection reads an older state or is writing."""
    with closing(sqlite3.connect(path, timeout=seconds)) as connection:
        try:
            ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError:
            return False
    return not busy
