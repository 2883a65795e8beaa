"""The ingester's database, SQLite with one writer connection or PostgreSQL, and its backup."""

import sqlite3
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from csi.errors import StoreError
from csi.exclusive_section import ExclusiveSection
from csi.sql import (
    OWNER,
    DatabaseError,
    SqlDatabase,
    SqliteOneWriter,
    chunks,
    columns,
    create_private_file,
    marks,
    new_token,
)
from csi.store import database_faults
from csi.store.models import database

__all__ = ["OWNER", "DatabaseError", "chunks", "columns", "database", "marks", "new_token"]

MIGRATIONS = Path(__file__).parent / "migrations"

sql_database = SqlDatabase(
    database,
    title="the database",
    migrations=MIGRATIONS,
    advisory_lock=7234501,
    pragmas={
        "journal_mode": "wal",
        "synchronous": "normal",  # a power cut may lose the last commits: their items are polled again
        "foreign_keys": 1,
        "cache_size": -2000,
        "wal_autocheckpoint": 4000,  # pages, 16 MB: a quarter of the fsyncs of the default 1000 (decision 0034)
        "journal_size_limit": 32 * 1024 * 1024,
    },
    sqlite=SqliteOneWriter,
    fault_remedy=lambda error: database_faults.identify(error).remedy,
)
_sql = sql_database
open_database = _sql.open
is_postgres = _sql.is_postgres
run, changed, fetch, fetch_all, fetch_one = _sql.run, _sql.changed, _sql.fetch, _sql.fetch_all, _sql.fetch_one
column, value, number = _sql.column, _sql.value, _sql.number
writing, connection, reading = _sql.writing, _sql.connection, _sql.reading
close_writer = _sql.close_writer
drop_broken_connection = _sql.drop_broken_connection
runner, migrate = _sql.runner, _sql.migrate
pending_migrations, applied_migrations = _sql.pending_migrations, _sql.applied_migrations


def exclusive_on_sqlite(section: ExclusiveSection) -> AbstractContextManager[None]:
    """Enter the exclusive section on SQLite only: on PostgreSQL each statement waits for the network, and other threads
    can work meanwhile."""
    return nullcontext() if is_postgres() else section


def place() -> str:
    """Where the database is, for error messages; a server's address may contain a password and is not shown."""
    return "the database" if is_postgres() else str(database.database)


def skip_locked() -> str:
    """On PostgreSQL, skip rows that another worker is claiming at this moment."""
    return "FOR UPDATE OF o SKIP LOCKED" if is_postgres() else ""


def backup(target: Path) -> None:
    """Write a consistent copy while worker and sidecar run, and check it. A damaged copy is removed."""
    if is_postgres():
        raise StoreError("this database is PostgreSQL: use pg_dump for a backup")
    if target.exists():
        raise StoreError(f"{target} exists already; choose another name")
    try:
        create_private_file(target)  # SQLite writes into an empty file, and would create one that others can read
    except OSError as error:
        raise StoreError(f"the backup to {target} failed: {error.strerror}") from error
    try:
        with database.connection_context():
            database.execute_sql("VACUUM INTO ?", (str(target),))
    except DatabaseError as error:
        if target.stat().st_size == 0:
            target.unlink()
        raise StoreError(f"the backup to {target} failed: {error}") from error
    target.chmod(0o600)
    try:
        with closing(sqlite3.connect(f"{target.absolute().as_uri()}?mode=ro", uri=True)) as copy:
            ((found,),) = copy.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        target.unlink(missing_ok=True)
        raise StoreError(f"the backup to {target} is damaged and was removed: {found}; check the disk, then try again")
