"""One SQL database on SQLite or PostgreSQL: statements, transactions, migrations; and private files."""

import errno
import fcntl
import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TextIO, TypeVar

from csi.errors import StoreError
from csi.import_blocker import without

with without("psycopg", "psycopg2"):  # 15 MB in every process; _open_postgres imports psycopg
    import peewee
    from peewee import Database, DatabaseError, DatabaseProxy, PostgresqlDatabase, SqliteDatabase
    from playhouse.migrations import MigrationError, Runner

__all__ = ["OWNER", "DatabaseError", "SqlDatabase", "SqliteOneWriter", "chunks", "columns", "marks", "new_token"]

T = TypeVar("T")

BUSY_SECONDS = 10
OWNER = f"{os.getpid()}-{secrets.token_hex(4)}"
"""The name of this process in lease tokens: it releases its own leases at shutdown."""

STATE_DIR_REMEDY = "set csi.state_dir (or CSI_STATE_DIR) to a directory that this user may write"

_statements = logging.getLogger("peewee")

WRITER_CACHE = -8000
"""Negative: SQLite takes it as kB."""


class SqliteOneWriter(SqliteDatabase):
    """SQLite where each thread reads through its own connection and all threads write through one.

    Threads that wait for the writer connection are woken at once; at SQLite's file lock they would sleep for
    milliseconds between two tries. The writer's page cache also stays valid, while each thread's own cache would have
    to read again every page that another connection changed (decision 0034). Migrations of 1.0.0 recognise SQLite by
    a class name that begins with "Sqlite".
    """

    _state: Any  # attributes of Peewee that its types do not declare
    _connect: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lock_writer = threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self._log_inode: int | None = None
        """Of the write-ahead log that the writer connection has open. None: not known yet."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._lock_writer, nullcontext() if self.in_transaction() else self._as_writer(), self.atomic():
            yield

    def run(self, sql: str, params: tuple[Any, ...]) -> sqlite3.Cursor:
        """Peewee's `execute_sql` costs as much as a small statement. Its log and its hooks still get each statement."""
        if self.query_hooks or _statements.isEnabledFor(logging.DEBUG):
            return self.execute_sql(sql, params)  # type: ignore[no-any-return, no-untyped-call]
        try:
            return self.connection().execute(sql, params)  # type: ignore[no-any-return, no-untyped-call]
        except sqlite3.Error:
            with peewee.__exception_wrapper__:  # type: ignore[attr-defined]
                raise

    def close_writer(self) -> None:
        """Wait for a running transaction, then close the writer connection and with it its lock on the file."""
        with self._lock_writer:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    @contextmanager
    def _as_writer(self) -> Iterator[None]:
        """This thread uses the writer connection instead of its own."""
        state = self._state
        own = state.conn, state.closed
        self._leave_deleted_log()
        if self._writer is None:
            self._writer = self._connect()
            self._writer.execute(f"PRAGMA cache_size = {WRITER_CACHE}")
        state.conn, state.closed = self._writer, False
        try:
            yield
        finally:
            state.conn, state.closed = own
            if self._writer.in_transaction:  # commit and rollback both failed: this connection cannot begin another
                self._writer.close()
                self._writer = None

    def _leave_deleted_log(self) -> None:
        """Close a writer whose write-ahead log was deleted: other connections would not see what it writes. What the
        deleted log holds is written into the database first, unless another process has begun a new log."""
        if self._writer is None:
            self._log_inode = None
            return
        try:
            found = os.stat(f"{self.database}-wal")
        except OSError:
            found = None
        if self._log_inode is None or (found is not None and found.st_ino == self._log_inode):
            self._log_inode = found.st_ino if found else None
            return
        with suppress(sqlite3.Error):
            if found is None or found.st_size == 0:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        logging.getLogger(__name__).warning("write-ahead log was deleted; connection to %s reopened", self.database)
        self.close_writer()
        self._log_inode = None


class SqlDatabase:
    """One database of this process: SQLite by a path, PostgreSQL by a URL, the same statements on both.

    Statements are written with `?`. Errors at the process edge name the database by `title`; `remedy` says what to
    set when its directory cannot be used, `fault_remedy` what to do about an error of the database.
    `advisory_lock` serializes migrations on PostgreSQL.
    """

    def __init__(
        self,
        proxy: DatabaseProxy,
        *,
        title: str,
        migrations: Path,
        advisory_lock: int,
        pragmas: Mapping[str, Any],
        remedy: str = STATE_DIR_REMEDY,
        sqlite: type[SqliteDatabase] = SqliteDatabase,
        fault_remedy: Callable[[Exception], str] | None = None,
    ) -> None:
        self.proxy = proxy
        self.migrations = migrations
        self._title = title
        self._advisory_lock = advisory_lock
        self._pragmas = dict(pragmas)
        self._remedy = remedy
        self._sqlite = sqlite
        self._fault_remedy = fault_remedy

    def open(self, url: str) -> Database:
        """Bind the models to this database. Nothing is read or written yet, but a missing SQLite file is created."""
        self.close_writer()
        db = _open_postgres(url) if "://" in url else self._open_sqlite(Path(url))
        self.proxy.initialize(db)
        return db

    def is_postgres(self) -> bool:
        return isinstance(self.proxy.obj, PostgresqlDatabase)

    # ── statements ──────────────────────────────────────────────────────────────────────────────────────

    def run(self, sql: str, *params: Any) -> Any:
        """Plain SQL: building the frequent statements through Peewee each time costs more than running them."""
        db = self.proxy.obj
        if isinstance(db, SqliteOneWriter):
            return db.run(sql, params)
        return self.proxy.execute_sql(_in_dialect(sql, self.is_postgres()), params)

    def fetch(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.run(sql, *params).fetchall()
        return found

    def one(self, sql: str, *params: Any) -> tuple[Any, ...] | None:
        return next(iter(self.fetch(sql, *params)), None)

    def fetch_all(self, kind: Callable[..., T], sql: str, *params: Any) -> list[T]:
        """One object per row: `kind` takes the columns in the order selected."""
        return [kind(*row) for row in self.fetch(sql, *params)]

    def fetch_one(self, kind: Callable[..., T], sql: str, *params: Any) -> T | None:
        """An object of the first row. None: there is no row."""
        return next(iter(self.fetch_all(kind, sql, *params)), None)

    def column(self, sql: str, *params: Any) -> list[Any]:
        """The first column of every row."""
        return [row[0] for row in self.fetch(sql, *params)]

    def value(self, sql: str, *params: Any) -> Any:
        """The first column of the first row. None: there is no row."""
        return next(iter(self.column(sql, *params)), None)

    def number(self, sql: str, *params: Any) -> int:
        """A count or a sum; a sum over no rows is 0."""
        return int(self.value(sql, *params) or 0)

    def changed(self, sql: str, *params: Any) -> int:
        """How many rows the statement changed. A conditional UPDATE that changed none lost the race for its row."""
        return int(self.run(sql, *params).rowcount)

    # ── transactions and connections ────────────────────────────────────────────────────────────────────

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction that takes the write lock at its start; it commits as a whole or leaves nothing behind."""
        db = self.proxy.obj
        try:
            with db.writing() if isinstance(db, SqliteOneWriter) else self.proxy.atomic():
                yield
        except DatabaseError as error:
            if (first := _first_error(error)) is not error:
                raise first from None
            raise

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Close this thread's connection at the end. Worker threads keep theirs open instead."""
        try:
            yield
        finally:
            if not self.proxy.is_closed():
                self.proxy.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Like `connection`, for commands and pages: a database error is raised as a StoreError."""
        with self._explained(), self.proxy.connection_context():
            yield

    def drop_broken_connection(self) -> None:
        """After a lost server connection the next statement of this thread must open a new one."""
        if self.is_postgres() and not self.proxy.is_closed() and not self.proxy.is_connection_usable():
            self.proxy.close()

    def close_writer(self) -> None:
        """On SQLite, close the connection that all threads write through. The next transaction opens a new one."""
        if isinstance(self.proxy.obj, SqliteOneWriter):
            self.proxy.obj.close_writer()

    # ── schema ──────────────────────────────────────────────────────────────────────────────────────────

    def runner(self) -> Runner:
        return Runner(self.proxy.obj, directory=str(self.migrations))

    def migrate(self) -> list[str]:
        """Apply the missing migrations, once, whichever process is first. Returns the names applied."""
        with self._explained(), self.proxy.connection_context(), self._migration_lock():
            self._refuse_newer()
            return list(self.runner().up())

    def pending_migrations(self) -> list[str]:
        with self._explained(), self.proxy.connection_context():
            self._refuse_newer()
            return [row.name for row in self.runner().status() if row.applied is None]

    def applied_migrations(self) -> list[str]:
        with self._explained(), self.proxy.connection_context():
            return sorted(self.runner().applied())

    def _refuse_newer(self) -> None:
        unknown = [row.name for row in self.runner().status() if row.path is None]
        if unknown:
            raise StoreError(
                f"{self._title} was made by a newer csi (it has {', '.join(unknown)}); "
                "install that version again, or restore a backup from before the upgrade"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except MigrationError as error:
            raise StoreError(f"the schema of {self._title} could not be migrated: {error}") from error
        except (DatabaseError, sqlite3.DatabaseError) as error:
            reason = " ".join(str(error).split())[:300]
            place = f" {self.proxy.database}" if isinstance(self.proxy.obj, SqliteDatabase) else ""
            remedy = f"; {self._fault_remedy(error)}" if self._fault_remedy else ""
            raise StoreError(f"{self._title}{place} cannot be used: {reason}{remedy}") from error

    @contextmanager
    def _migration_lock(self) -> Iterator[None]:
        """Two processes may start together on an empty database: the second waits and finds the schema complete."""
        if self.is_postgres():
            self.proxy.execute_sql(f"SELECT pg_advisory_lock({self._advisory_lock})")
            try:
                yield
            finally:
                self.proxy.execute_sql(f"SELECT pg_advisory_unlock({self._advisory_lock})")
        else:
            with open_private_file(f"{self.proxy.database}.migrate.lock") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX)
                except OSError as error:
                    raise StoreError(unlockable(handle.name, error)) from error
                yield

    def _open_sqlite(self, path: Path) -> SqliteDatabase:
        make_private_dir(path.parent, self._remedy)
        try:
            create_private_file(path)
            if not os.access(path, os.R_OK | os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise StoreError(f"{path} cannot be opened for writing: {error.strerror}") from error
        options: dict[str, Any] = {"timeout": BUSY_SECONDS, "lock_type": "IMMEDIATE", "check_same_thread": False}
        return self._sqlite(str(path), pragmas=self._pragmas, **options)


def marks(values: Sequence[Any]) -> str:
    """`?,?,?` for an IN list. `NULL`, which equals nothing, for an empty one: PostgreSQL refuses `IN ()`."""
    return ",".join("?" * len(values)) or "NULL"


@cache
def columns(kind: type, table: str = "") -> str:
    """The names of a dataclass's fields, for a SELECT whose rows become its objects."""
    return ", ".join(f"{table}.{name.name}" if table else name.name for name in fields(kind))


def chunks(values: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Slices small enough for the parameters of one statement."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def new_token() -> str:
    """A lease token: the process that holds the row, and a random part for this claim."""
    return f"{OWNER}.{secrets.token_hex(6)}"


def make_private_dir(path: Path, remedy: str = STATE_DIR_REMEDY) -> None:
    """Create the directory for this user only; one that exists keeps its mode."""
    try:
        if not path.exists():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            give_to_owner_of_directory(path)
    except OSError as error:
        raise StoreError(f"the directory {path} cannot be created: {error.strerror}; {remedy}") from error


def give_to_owner_of_directory(path: Path | str, file: int | None = None) -> None:
    """A file that root made becomes the directory owner's: a file of root would lock out a service of that user.

    `file` is a descriptor of the file; with it the name may be replaced meanwhile."""
    if os.geteuid() == 0:
        there = os.stat(os.path.dirname(os.path.realpath(path)))
        if there.st_uid != 0:
            os.chown(path if file is None else file, there.st_uid, there.st_gid)


def open_private_file(path: Path | str) -> TextIO:
    """A lock file that only this user can open. Its content is kept. A link in its place is refused: this
    process would overwrite the file that the link names."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    give_to_owner_of_directory(path, file)
    return os.fdopen(file, "r+")


def unlockable(path: Path | str, error: OSError) -> str:
    """The sentence for a lock that the file system refuses."""
    remedy = "use a directory on a local file system (NFS needs its lock service)"
    return f"{path} cannot be locked: {error.strerror}; {remedy}"


def create_private_file(path: Path | str) -> None:
    """Create an empty file that only this user can open. An existing file keeps its content and its mode.

    An existing file is not even opened: closing it would drop the locks of every SQLite connection that this process
    has to it, and another process could then delete the WAL under them (sqlite.org/howtocorrupt, 2.2). A link to a
    file that does not exist yet is followed.
    """
    with suppress(FileExistsError):
        file = os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            give_to_owner_of_directory(path, file)
        finally:
            os.close(file)


class PostgresWithTimeLimit(PostgresqlDatabase):
    """A process that is stopped inside a transaction (SIGSTOP, a paused machine) would keep its row locks while its
    connection lives, and every other worker would wait. The server ends such a transaction instead. No transaction of
    ours waits for anything but the database."""

    MAX_IDLE_SECONDS = 30

    def _initialize_connection(self, conn: Any) -> None:
        conn.execute(f"SET idle_in_transaction_session_timeout = '{self.MAX_IDLE_SECONDS}s'")


def _open_postgres(url: str) -> PostgresqlDatabase:
    try:
        import psycopg
        from psycopg.pq import TransactionStatus
        from psycopg.types import json
    except ImportError as error:
        raise StoreError("PostgreSQL needs the extra: pip install 'creator-signals[postgres]'") from error
    # What peewee does at its import where it finds psycopg.
    vars(peewee).update(
        psycopg=psycopg, TransactionStatus=TransactionStatus, Json_pg3=json.Json, Jsonb_pg3=json.Jsonb, psycopg2=None
    )
    adapter = peewee.Psycopg3Adapter
    adapter.txn_idle, adapter.txn_inerror = TransactionStatus.IDLE, TransactionStatus.INERROR
    adapter.txn_unknown = TransactionStatus.UNKNOWN
    return PostgresWithTimeLimit(url, prefer_psycopg3=True)


def _first_error(error: DatabaseError) -> DatabaseError:
    """The error that failed the transaction. When the disk is full SQLite ends the transaction itself, and the ROLLBACK
    that follows fails with `cannot rollback`."""
    found: BaseException | None = error
    while found is not None and "cannot rollback" in str(found):
        found = found.__context__
    return found if isinstance(found, DatabaseError) else error


@lru_cache(maxsize=2_000)
def _in_dialect(sql: str, postgres: bool) -> str:
    return sql.replace("%", "%%").replace("?", "%s") if postgres else sql
