"""Opening the database, bringing its schema up to date, and the one way to write: a short immediate transaction."""

import errno
import fcntl
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from peewee import Database, PostgresqlDatabase, SqliteDatabase
from peewee import DatabaseError as DatabaseError  # for whoever must tell our trouble from a source's
from playhouse.migrations import MigrationError, Runner

from csi.config.settings import looks_like_postgres
from csi.errors import StoreError
from csi.exclusive import Desk
from csi.store.models import database
from csi.store.worker_lock import open_private

T = TypeVar("T")

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 10

# One process, one name: a lease says who holds it, so that an orderly exit can give back what it held.
OWNER = f"{os.getpid()}-{secrets.token_hex(4)}"

WRITER_CACHE = -8000
"""In kB, as the negative number says."""

_PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": "normal",  # a power cut can only make us read a source again (DESIGN §4)
    "foreign_keys": 1,
    "cache_size": -2000,
    "wal_autocheckpoint": 4000,  # pages, 16 MB: a fourth of the fsyncs of the usual 1000 (ops/decisions/0034)
    "journal_size_limit": 32 * 1024 * 1024,
}


def open_database(url: str) -> Database:
    """Bind the models to this database. Nothing is read or written yet, except that a SQLite file is made."""
    if isinstance(database.obj, SqliteOneWriter):
        database.obj.let_go()
    db = _postgres(url) if looks_like_postgres(url) else _sqlite(Path(url))
    database.initialize(db)
    return db


def is_postgres() -> bool:
    return isinstance(database.obj, PostgresqlDatabase)


class SqliteOneWriter(SqliteDatabase):
    """SQLite, where the threads of a process read through connections of their own and write through one.

    They take turns at it without a pause; at SQLite's own lock, where they meet other processes, they would sleep for
    milliseconds between two looks. And its cache stays true, where each of theirs would have to read every page again
    that another one changed.
    """

    _state: Any  # Peewee's own, which its types do not name
    _connect: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turn = threading.RLock()
        self._writer: sqlite3.Connection | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._turn, nullcontext() if self.in_transaction() else self._as_writer(), self.atomic():
            yield

    def let_go(self) -> None:
        """Whoever writes now finishes; then the writer's connection, and its lock on the file, are gone."""
        with self._turn:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    @contextmanager
    def _as_writer(self) -> Iterator[None]:
        """This thread's connection is the writer's, for now."""
        state = self._state
        own = state.conn, state.closed
        if self._writer is None:
            self._writer = self._connect()
            self._writer.execute(f"PRAGMA cache_size = {WRITER_CACHE}")
        state.conn, state.closed = self._writer, False
        try:
            yield
        finally:
            state.conn, state.closed = own
            if self._writer.in_transaction:  # neither commit nor rollback went through: it would never begin another
                self._writer.close()
                self._writer = None


@contextmanager
def writing() -> Iterator[None]:
    """One transaction that takes the writer's lock at once: it commits whole or leaves nothing behind."""
    with database.obj.writing() if isinstance(database.obj, SqliteOneWriter) else database.atomic():
        yield


def at(desk: Desk) -> AbstractContextManager[None]:
    """Take turns at this desk, where that pays: on PostgreSQL each statement waits for the network, and others need not
    wait for that."""
    return nullcontext() if is_postgres() else desk


@contextmanager
def connection() -> Iterator[None]:
    """This thread's connection, opened when it is first used, is closed at the end. Workers keep theirs open."""
    try:
        yield
    finally:
        if not database.is_closed():
            database.close()


@contextmanager
def reading() -> Iterator[None]:
    """Like `connection`, for a process that answers others: trouble with the database is a StoreError."""
    with _readable(), database.connection_context():
        yield


def drop_broken_connection() -> None:
    """After a lost server connection the next statement of this thread must open a new one."""
    if is_postgres() and not database.is_closed() and not database.is_connection_usable():
        database.close()


def run(sql: str, *params: Any) -> Any:
    """Plain SQL, for the statements that run once per event: building them anew each time is what would cost."""
    return database.execute_sql(_in_dialect(sql, is_postgres()), params)


def fetch(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    return list(run(sql, *params).fetchall())


def changed(sql: str, *params: Any) -> int:
    """How many rows the statement touched: the answer to "was it still as I thought?"."""
    return int(run(sql, *params).rowcount)


def marks(values: Sequence[Any]) -> str:
    """`?,?,?` for an IN list."""
    return ",".join("?" * len(values))


def skip_locked() -> str:
    """On PostgreSQL, rows that another worker is claiming right now are left to it."""
    return "FOR UPDATE OF o SKIP LOCKED" if is_postgres() else ""


@cache
def _in_dialect(sql: str, postgres: bool) -> str:
    return sql.replace("?", "%s") if postgres else sql


def new_token() -> str:
    return f"{OWNER}.{secrets.token_hex(6)}"


def chunks(values: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Slices small enough for one statement's parameters."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def migrate() -> list[str]:
    """Apply what is missing, once, whoever calls first. Returns the names applied."""
    with _readable(), database.connection_context(), _migration_lock():
        _refuse_newer()
        return list(_runner().up())


def pending_migrations() -> list[str]:
    with _readable(), database.connection_context():
        _refuse_newer()
        return [row.name for row in _runner().status() if row.applied is None]


def applied_migrations() -> list[str]:
    with _readable(), database.connection_context():
        return sorted(_runner().applied())


def check_pages() -> None:
    """Read the whole SQLite file: some seconds for each gigabyte. StoreError says what is damaged."""
    if is_postgres():
        return
    with _readable(), database.connection_context():
        found = [str(row[0]) for row in database.execute_sql("PRAGMA quick_check(5)").fetchall()]
    if found != ["ok"]:
        raise StoreError(f"the integrity check found: {'; '.join(found)[:300]}")


def backup(target: Path) -> None:
    """A consistent copy while everything runs. PostgreSQL has its own tools for that."""
    if is_postgres():
        raise StoreError("this database is PostgreSQL: use pg_dump for a backup")
    if target.exists():
        raise StoreError(f"{target} exists already; choose another name")
    try:
        with database.connection_context():
            database.execute_sql("VACUUM INTO ?", (str(target),))
    except DatabaseError as error:
        raise StoreError(f"the backup to {target} failed: {error}") from error
    target.chmod(0o600)
    _verify(target)


def _verify(copy: Path) -> None:
    """A backup that nobody checked is a hope. One that is damaged is removed, and said."""
    try:
        connection = sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro", uri=True)
        with closing(connection):
            ((found,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        copy.unlink(missing_ok=True)
        raise StoreError(f"the backup to {copy} is damaged and was removed: {found}; look at the disk, then try again")


def _runner() -> Runner:
    return Runner(database.obj, directory=str(MIGRATIONS))


def _refuse_newer() -> None:
    unknown = [row.name for row in _runner().status() if row.path is None]
    if unknown:
        raise StoreError(
            f"the database was made by a newer csi (it has {', '.join(unknown)}); "
            "install that version again, or restore a backup from before the upgrade"
        )


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except MigrationError as error:
        raise StoreError(f"the schema could not be brought up to date: {error}") from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        raise StoreError(f"the database cannot be used: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@contextmanager
def _migration_lock() -> Iterator[None]:
    """Worker and sidecar may start together on an empty database: the second waits and finds it done."""
    if is_postgres():
        database.execute_sql("SELECT pg_advisory_lock(7234501)")
        try:
            yield
        finally:
            database.execute_sql("SELECT pg_advisory_unlock(7234501)")
    else:
        with open_private(f"{database.database}.migrate.lock") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _sqlite(path: Path) -> SqliteDatabase:
    make_private_dir(path.parent)
    _make_file(path)
    options = {"timeout": BUSY_SECONDS, "lock_type": "IMMEDIATE", "check_same_thread": False}
    return SqliteOneWriter(str(path), pragmas=_PRAGMAS, **options)


def _make_file(path: Path) -> None:
    """One that is there is never opened here: closing it would take away the locks of every connection that this
    process has to it, and another process would then delete the log under them (sqlite.org/howtocorrupt, 2.2)."""
    try:
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        elif not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StoreError(f"{path} cannot be opened for writing: {error.strerror}") from error


def make_private_dir(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the directory {path} cannot be made: {error.strerror}; set csi.state_dir (or CSI_STATE_DIR) to one "
            "that this user may write"
        ) from error


def _postgres(url: str) -> PostgresqlDatabase:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise StoreError("PostgreSQL needs the extra: pip install 'csi[postgres]'") from error
    return PostgresqlDatabase(url, prefer_psycopg3=True)
