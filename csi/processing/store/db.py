"""Opening processing's database, its schema, and the one way to write: a short immediate transaction."""

import fcntl
import json
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from peewee import Database, DatabaseProxy, PostgresqlDatabase, SqliteDatabase
from peewee import DatabaseError as DatabaseError  # for whoever must tell our trouble from a provider's
from playhouse.migrations import MigrationError, Runner

from csi.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 10
OWNER = f"{os.getpid()}-{secrets.token_hex(4)}"
"""One process, one name: it renews the leases it holds while it lives, and gives them back when it ends."""

_PRAGMAS = {
    "journal_mode": "wal",
    "synchronous": "full",  # money was spent: a power cut must not make us forget it
    "foreign_keys": 1,
    "cache_size": -8000,
    "journal_size_limit": 32 * 1024 * 1024,
}

database = DatabaseProxy()


def open_database(url: str) -> Database:
    """Nothing is read or written yet, except that a SQLite file is made."""
    db = _postgres(url) if re.match(r"postgres(ql)?://", url) else _sqlite(Path(url))
    database.initialize(db)
    return db


def is_postgres() -> bool:
    return isinstance(database.obj, PostgresqlDatabase)


@contextmanager
def writing() -> Iterator[None]:
    """One transaction that takes the writer's lock at once: it commits whole or leaves nothing behind."""
    with database.atomic():
        yield


@contextmanager
def connection() -> Iterator[None]:
    """This thread's connection is closed at the end. Workers keep theirs open."""
    try:
        yield
    finally:
        if not database.is_closed():
            database.close()


@contextmanager
def reading() -> Iterator[None]:
    """For commands and pages: trouble with the database is a StoreError."""
    with _readable(), database.connection_context():
        yield


def drop_broken_connection() -> None:
    """After a lost server connection the next statement of this thread must open a new one."""
    if is_postgres() and not database.is_closed() and not database.is_connection_usable():
        database.close()


def run(sql: str, *params: Any) -> Any:
    return database.execute_sql(_in_dialect(sql, is_postgres()), params)


def fetch(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    return list(run(sql, *params).fetchall())


def one(sql: str, *params: Any) -> tuple[Any, ...] | None:
    found = fetch(sql, *params)
    return found[0] if found else None


def number(sql: str, *params: Any) -> int:
    """A count or a sum; nothing to add up is 0."""
    return int(fetch(sql, *params)[0][0] or 0)


def changed(sql: str, *params: Any) -> int:
    """How many rows the statement touched: the answer to "was it still as I thought?"."""
    return int(run(sql, *params).rowcount)


def marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


def new_token() -> str:
    return f"{OWNER}.{secrets.token_hex(6)}"


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(10)}"


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def migrate() -> list[str]:
    """Apply what is missing, once, whoever calls first. Returns the names applied."""
    with _readable(), database.connection_context(), _migration_lock():
        _refuse_newer()
        return list(_runner().up())


def pending_migrations() -> list[str]:
    with _readable(), database.connection_context():
        _refuse_newer()
        return [row.name for row in _runner().status() if row.applied is None]


def _runner() -> Runner:
    return Runner(database.obj, directory=str(MIGRATIONS))


def _refuse_newer() -> None:
    unknown = [row.name for row in _runner().status() if row.path is None]
    if unknown:
        raise StoreError(f"processing's database was made by a newer csi (it has {', '.join(unknown)}); upgrade csi")


@cache
def _in_dialect(sql: str, postgres: bool) -> str:
    return sql.replace("%", "%%").replace("?", "%s") if postgres else sql


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except MigrationError as error:
        raise StoreError(f"processing's schema could not be brought up to date: {error}") from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        reason = " ".join(str(error).split())[:300]
        raise StoreError(f"processing's database cannot be used: {reason}") from error


@contextmanager
def _migration_lock() -> Iterator[None]:
    """Worker and receiver may start together on an empty database: the second waits and finds it done."""
    if is_postgres():
        database.execute_sql("SELECT pg_advisory_lock(7234506)")
        try:
            yield
        finally:
            database.execute_sql("SELECT pg_advisory_unlock(7234506)")
    else:
        handle = os.open(f"{database.database}.migrate.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _sqlite(path: Path) -> SqliteDatabase:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # one that is there is not opened: closing it would end our locks on it
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened for writing: {error.strerror}; set state_dir in processing.yaml"
        ) from error
    return SqliteDatabase(str(path), pragmas=_PRAGMAS, timeout=BUSY_SECONDS, lock_type="IMMEDIATE")


def _postgres(url: str) -> PostgresqlDatabase:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise StoreError("PostgreSQL needs the extra: pip install 'csi[postgres]'") from error
    return PostgresqlDatabase(url, prefer_psycopg3=True)
