"""Copy all tables of a SQLite file into PostgreSQL and verify the result. Only rows that differ are written.

Both sides are read in key order and compared row by row, so memory stays small, a killed copy is continued by the next
run, and a copy made while the worker runs is brought up to date by another run. A row in `copies` marks the target:
`begun`, then `complete`; it is deleted when a worker uses the target.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import islice
from pathlib import Path
from typing import Any

from peewee import PeeweeException

from csi.config.secrets import MASK, hide_password, url_password
from csi.errors import StoreError
from csi.sql import BUSY_SECONDS
from csi.store import db
from csi.store.catalog import partitions
from csi.store.models import database

Row = tuple[Any, ...]

NOT_COPIED = ("schema_migration", "leadership", "copies")
"""Tables that describe one database and not the installation."""

ROWS_PER_TRANSACTION = 1_000
"""A killed copy loses at most this many rows of work."""

_ADVISORY_LOCK = 7234508
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Table:
    """A table of the source. The columns of its key come first."""

    name: str
    columns: tuple[str, ...]
    key: int
    """The number of key columns."""
    flags: frozenset[int]
    """Positions of booleans, which SQLite stores as integers."""
    texts: frozenset[int]

    def key_of(self, row: Row) -> Row:
        return row[: self.key]


@dataclass(frozen=True)
class CopiedTable:
    """The result for one table: both sides have this many rows and this checksum."""

    table: str
    rows: int
    written: int
    removed: int
    sha256: str


class SqliteSource:
    """A SQLite file as it was when the copy began: one read transaction, unaffected by later writes."""

    def __init__(self, path: Path) -> None:
        self.mended = 0
        """Texts changed because PostgreSQL cannot store them: NUL and invalid UTF-8 become U+FFFD."""
        self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)
        self._db.text_factory = self._text
        self._db.execute("PRAGMA query_only = 1")
        self._version = self._number("PRAGMA data_version")
        self._db.execute("BEGIN")
        self._number("SELECT COUNT(*) FROM sqlite_master")  # SQLite takes the snapshot at the first read

    def _text(self, raw: bytes) -> str:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode(errors="replace")
            self.mended += 1
        if "\0" not in text:
            return text
        self.mended += 1
        return text.replace("\0", _REPLACEMENT)

    def _number(self, sql: str) -> int:
        return int(self._db.execute(sql).fetchone()[0])

    def tables(self) -> list[Table]:
        """Every table after the tables that its foreign keys refer to."""
        names = [row[0] for row in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        parents = {
            name: {row[2] for row in self._db.execute(f"PRAGMA foreign_key_list({name})")} - {name}
            for name in names
            if name not in NOT_COPIED and not name.startswith("sqlite_")
        }
        found = []
        for name in TopologicalSorter(parents).static_order():
            kinds = {row[1]: row[2].upper() for row in self._db.execute(f"PRAGMA table_info({name})")}
            key = database.get_primary_keys(name)  # the target's: that of a partitioned table includes its time column
            columns = (*key, *(column for column in kinds if column not in key))
            flags, texts = (
                frozenset(at for at, column in enumerate(columns) if kinds[column] == kind)
                for kind in ("BOOLEAN", "TEXT")
            )
            found.append(Table(name, columns, len(key), flags, texts))
        return found

    def count(self, table: Table) -> int:
        return self._number(f"SELECT COUNT(*) FROM {table.name}")

    def rows(self, table: Table) -> Iterator[Row]:
        order = ", ".join(table.columns[: table.key])
        for row in self._db.execute(f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {order}"):
            if table.flags:
                row = tuple(bool(it) if at in table.flags and it is not None else it for at, it in enumerate(row))
            yield row

    def months(self, table: Table) -> list[str]:
        """The months of its rows, for tables that PostgreSQL partitions by month."""
        column = partitions.BY_TIME.get(table.name)
        if column is None:
            return []
        month = f"substr({column}, 1, 7)" if column == "captured_on" else f"strftime('%Y-%m', {column}, 'unixepoch')"
        return [row[0] for row in self._db.execute(f"SELECT DISTINCT {month} FROM {table.name}")]

    def sequences(self) -> dict[str, int]:
        """The highest id that each table ever assigned, even if that row was deleted: ids are never reused."""
        return dict(self._db.execute("SELECT name, seq FROM sqlite_sequence WHERE seq > 0"))

    def was_written_to(self) -> bool:
        """Whether another connection committed since this one was opened. Ends the snapshot."""
        self._db.rollback()
        return self._number("PRAGMA data_version") != self._version

    def close(self) -> None:
        self._db.close()


class PostgresTarget:
    """A PostgreSQL database: read through its own connection, because a cursor stays open while the store's connection
    commits."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._reader = psycopg.connect(url)

    def is_empty(self, table: Table) -> bool:
        return not db.fetch(f"SELECT 1 FROM {table.name} LIMIT 1")

    def rows(self, table: Table) -> Iterator[Row]:
        """Sorted as SQLite sorts: by bytes, whatever the collation of the database."""
        keys = enumerate(table.columns[: table.key])
        order = ", ".join(f'{name} COLLATE "C"' if at in table.texts else name for at, name in keys)
        with self._reader.transaction(), self._reader.cursor(name="csi_copy") as cursor:
            cursor.itersize = ROWS_PER_TRANSACTION
            cursor.execute(f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {order}")
            yield from cursor

    def append(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert into an empty table with COPY, which is much faster than INSERT."""
        sql = f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN"
        with db.writing(), database.cursor().copy(sql) as stream:
            for row in rows:
                stream.write_row(row)

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        key, rest = table.columns[: table.key], table.columns[table.key :]
        then = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in rest)}" if rest else "NOTHING"
        marks = ", ".join(["%s"] * len(table.columns))
        sql = (
            f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks}) "
            f"ON CONFLICT ({', '.join(key)}) DO {then}"
        )
        _run_many(sql, rows)

    def remove(self, table: Table, keys: Sequence[Row]) -> None:
        which = " AND ".join(f"{name} = %s" for name in table.columns[: table.key])
        _run_many(f"DELETE FROM {table.name} WHERE {which}", keys)

    def set_sequences(self, highest: dict[str, int]) -> None:
        for table, value in highest.items():
            db.run("SELECT setval(pg_get_serial_sequence(?, 'id'), ?)", table, value)

    def close(self) -> None:
        self._reader.close()


def copy(
    path: Path,
    url: str,
    *,
    origin: str,
    now: Callable[[], float],
    is_last: bool = True,
    notice: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[CopiedTable], int]:
    """Make the target equal to the file and verify it. Returns the result for each table, and how many texts were
    changed. `is_last`: the copy is marked complete; StoreError when the file was written to meanwhile."""
    db.open_database(url)
    with _explained(url):
        db.migrate()
        with closing(SqliteSource(path)) as source, db.connection(), closing(PostgresTarget(url)) as target:
            # PostgreSQL releases this lock when the connection ends, however the process ends.
            if not db.fetch("SELECT pg_try_advisory_lock(?)", _ADVISORY_LOCK)[0][0]:
                raise StoreError("another copy into the target is running; wait for its end")
            tables = source.tables()
            begin_copy(origin, now(), is_empty=all(map(target.is_empty, tables)))
            done = _mirror(source, target, tables, notice)
            if is_last:
                if source.was_written_to():
                    raise StoreError(
                        "another process wrote to the source during the copy (the sidecar, a command): stop it and run "
                        "this again; only the changes are written"
                    )
                db.run("UPDATE copies SET state = 'complete', finished_at = ? WHERE source = ?", now(), origin)
            return done, source.mended


def begin_copy(source: str, now: float, *, is_empty: bool) -> None:
    """Mark a copy as begun. StoreError unless the database is empty or holds a copy from the same source."""
    begun = db.column("SELECT source FROM copies")
    if begun and begun != [source]:
        raise StoreError(f"the target holds a copy of {begun[0]}; choose an empty database")
    if not begun and not is_empty:
        raise StoreError("the target holds rows that were not written by a copy; choose an empty database")
    # Committed before the first row is copied: after a crash the row stays `begun`, and no worker starts here.
    with db.writing():
        db.run("INSERT INTO copies (source, begun_at) VALUES (?, ?) ON CONFLICT (source) DO NOTHING", source, now)
        db.run("UPDATE copies SET state = 'begun', finished_at = NULL WHERE source = ?", source)


def take_into_use() -> None:
    """Called when a worker starts: later copies must not overwrite this database. StoreError when the copy is
    incomplete, because rows may be missing."""
    begun = db.value("SELECT source FROM copies WHERE state = 'begun'")
    if begun:
        raise StoreError(
            f"the copy into this database is not finished: stop the worker of {begun} and run csi db copy again"
        )
    db.run("DELETE FROM copies")


def _mirror(
    source: SqliteSource, target: PostgresTarget, tables: list[Table], notice: Callable[[int, int], None]
) -> list[CopiedTable]:
    total, passed = 2 * sum(source.count(table) for table in tables), 0

    def watched(rows: Iterator[Row]) -> Iterator[Row]:
        nonlocal passed
        for row in rows:
            passed += 1
            if passed % ROWS_PER_TRANSACTION == 0:
                notice(passed, total)
            yield row

    # Referring rows are deleted first and inserted last, so every foreign key holds at each commit.
    removed = {table.name: _remove_gone(source, target, table) for table in reversed(tables)}
    # Before the comparison opens its cursor: creating a partition waits until no transaction reads the table.
    for table in tables:
        for month in source.months(table):
            partitions.ensure_partition(table.name, partitions.month_starts(month))
    written = {table.name: _write_news(watched(source.rows(table)), target, table) for table in tables}
    target.set_sequences(source.sequences())
    mended = source.mended
    copied = []
    for table in tables:  # both sides are read again from beginning to end
        (rows, digest), there = _digest(watched(source.rows(table))), _digest(target.rows(table))
        if (rows, digest) != there:
            raise StoreError(
                f"{table.name}: {rows:,} rows of the source and {there[0]:,} of the target do not agree; run it again"
            )
        copied.append(CopiedTable(table.name, rows, written[table.name], removed[table.name], digest))
    source.mended = mended  # the second read counted the same texts again
    notice(total, total)
    return copied


def _remove_gone(source: SqliteSource, target: PostgresTarget, table: Table) -> int:
    """Delete the target's rows that the source does not have any more."""
    if target.is_empty(table):
        return 0
    mended, removed = source.mended, 0
    found = _differences(table, source.rows(table), target.rows(table))
    gone = (table.key_of(there) for here, there in found if here is None and there is not None)
    for keys in _by_thousands(gone):
        target.remove(table, keys)
        removed += len(keys)
    source.mended = mended  # `_write_news` reads the same rows and counts them
    return removed


def _write_news(ours: Iterator[Row], target: PostgresTarget, table: Table) -> int:
    put, written = target.append if target.is_empty(table) else target.write, 0
    news = (here for here, _ in _differences(table, ours, target.rows(table)) if here is not None)
    for rows in _by_thousands(news):
        put(table, rows)
        written += len(rows)
    return written


def _differences(table: Table, ours: Iterator[Row], theirs: Iterator[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Merge two sorted streams: pairs of rows that have the same key and differ, None where a side lacks the row."""
    ours, theirs = _in_order(table, ours), _in_order(table, theirs)
    here, there = next(ours, None), next(theirs, None)
    while here is not None or there is not None:
        if there is None or (here is not None and table.key_of(here) < table.key_of(there)):
            yield here, None
            here = next(ours, None)
        elif here is None or table.key_of(there) < table.key_of(here):
            yield None, there
            there = next(theirs, None)
        else:
            if here != there:
                yield here, there
            here, there = next(ours, None), next(theirs, None)


def _in_order(table: Table, rows: Iterator[Row]) -> Iterator[Row]:
    """Pass the rows on. StoreError when keys do not grow: NUL or invalid UTF-8 in a key changes its order, and the
    comparison would miss rows."""
    last: Row | None = None
    for row in rows:
        key = table.key_of(row)
        if None in key or (last is not None and key <= last):
            raise StoreError(
                f"{table.name}: a key has NUL, invalid UTF-8 or NULL in it, which PostgreSQL cannot store; "
                f"correct or delete that row, {last!r} or {key!r}"
            )
        last = key
        yield row


def _digest(rows: Iterator[Row]) -> tuple[int, str]:
    number, digest = 0, hashlib.sha256()
    for number, row in enumerate(rows, 1):  # noqa: B007 it is the count
        digest.update(json.dumps(row).encode())
    return number, digest.hexdigest()


def _by_thousands(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while found := list(islice(rows, ROWS_PER_TRANSACTION)):
        yield found


def _run_many(sql: str, rows: Sequence[Row]) -> None:
    """In one transaction; psycopg sends the statements as a pipeline, without a round trip for each row."""
    with db.writing():
        database.cursor().executemany(sql, rows)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Raise an error of either side as a StoreError of one sentence, without the password of the URL."""
    import psycopg

    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"the source cannot be read: {error}") from error
    except StoreError as error:
        raise StoreError(f"copy to {hide_password(url)}: {_without_password(error, url)}") from error
    except (PeeweeException, psycopg.Error) as error:
        stopped = f"copy to {hide_password(url)} stopped: {_without_password(error, url)}"
        raise StoreError(f"{stopped}; rows copied so far are kept: run it again to continue") from error


def _without_password(error: Exception, url: str) -> str:
    text, password = " ".join(str(error).split())[:400], url_password(url)
    return text.replace(password, MASK) if password else text
