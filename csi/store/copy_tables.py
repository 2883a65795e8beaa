"""Everything from a SQLite file into PostgreSQL, row by row in the order of keys: only what differs is written.

So a copy that was killed goes on where it was, and one that was made while the worker ran is brought up to date by
another. Two streams in the same order are held against each other; neither is ever whole in memory.
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
from csi.store import copy_marker
from csi.store import db as store
from csi.store.catalog import partitions
from csi.store.models import database

Row = tuple[Any, ...]

OWN = ("schema_migration", "duties", "copies")
"""What belongs to a database and not to the installation."""

AT_ONCE = 1_000
"""Rows in a transaction: what a kill costs."""

_LOCK = 7234508
_MENDED = "\ufffd"


@dataclass(frozen=True)
class Table:
    """A table of the source. The columns of its key come first."""

    name: str
    columns: tuple[str, ...]
    key: int
    """So many of the columns are the key."""
    flags: frozenset[int]
    """Places of booleans, which SQLite has as numbers."""
    texts: frozenset[int]

    def key_of(self, row: Row) -> Row:
        return row[: self.key]


@dataclass(frozen=True)
class CopiedTable:
    """What became of a table. Both sides have these rows and this checksum."""

    table: str
    rows: int
    written: int
    removed: int
    sha256: str


class SqliteSource:
    """A SQLite file as it is at one moment, whatever others write meanwhile."""

    def __init__(self, path: Path) -> None:
        self.mended = 0
        """Texts that PostgreSQL cannot hold, or nobody can read: NUL and broken UTF-8 become U+FFFD."""
        self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)
        self._db.text_factory = self._text
        self._db.execute("PRAGMA query_only = 1")
        self._version = self._number("PRAGMA data_version")
        self._db.execute("BEGIN")
        self._number("SELECT COUNT(*) FROM sqlite_master")  # the transaction begins with the first read

    def _text(self, raw: bytes) -> str:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = raw.decode(errors="replace")
            self.mended += 1
        if "\0" not in text:
            return text
        self.mended += 1
        return text.replace("\0", _MENDED)

    def _number(self, sql: str) -> int:
        return int(self._db.execute(sql).fetchone()[0])

    def tables(self) -> list[Table]:
        """Those that others refer to come first."""
        names = [row[0] for row in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        ours = [name for name in names if name not in OWN and not name.startswith("sqlite_")]
        graph = {name: self._parents(name) - {name} for name in ours}
        return [self._table(name) for name in TopologicalSorter(graph).static_order()]

    def _parents(self, name: str) -> set[str]:
        return {row[2] for row in self._db.execute(f"PRAGMA foreign_key_list({name})")}

    def _table(self, name: str) -> Table:
        kinds = {row[1]: row[2].upper() for row in self._db.execute(f"PRAGMA table_info({name})")}
        key = database.get_primary_keys(name)  # the target's: where it has partitions, their column is part of it
        columns = (*key, *(column for column in kinds if column not in key))
        flags, texts = (
            frozenset(at for at, column in enumerate(columns) if kinds[column] == kind) for kind in ("BOOLEAN", "TEXT")
        )
        return Table(name, columns, len(key), flags, texts)

    def count(self, table: Table) -> int:
        return self._number(f"SELECT COUNT(*) FROM {table.name}")

    def rows(self, table: Table) -> Iterator[Row]:
        order = ", ".join(table.columns[: table.key])
        for row in self._db.execute(f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {order}"):
            yield self._plain(table, row) if table.flags else row

    def _plain(self, table: Table, row: Row) -> Row:
        return tuple(bool(it) if at in table.flags and it is not None else it for at, it in enumerate(row))

    def months(self, table: Table) -> list[str]:
        """That its rows are of, where PostgreSQL keeps them by the month."""
        column = partitions.BY_TIME.get(table.name)
        if column is None:
            return []
        month = f"substr({column}, 1, 7)" if column == "captured_on" else f"strftime('%Y-%m', {column}, 'unixepoch')"
        return [row[0] for row in self._db.execute(f"SELECT DISTINCT {month} FROM {table.name}")]

    def sequences(self) -> dict[str, int]:
        """The highest id that was ever given, which may be gone: ids are never given twice."""
        return dict(self._db.execute("SELECT name, seq FROM sqlite_sequence WHERE seq > 0"))

    def was_written_to(self) -> bool:
        """Somebody committed since this was opened. Ends the moment that it shows."""
        self._db.rollback()
        return self._number("PRAGMA data_version") != self._version

    def close(self) -> None:
        self._db.close()


class PostgresTarget:
    """A PostgreSQL database: read through a connection of its own, written through the store's."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._reader = psycopg.connect(url)

    def is_empty(self, table: Table) -> bool:
        return not store.fetch(f"SELECT 1 FROM {table.name} LIMIT 1")

    def rows(self, table: Table) -> Iterator[Row]:
        """Sorted as SQLite sorts: byte by byte, whatever the database's own language."""
        keys = enumerate(table.columns[: table.key])
        order = ", ".join(f'{name} COLLATE "C"' if at in table.texts else name for at, name in keys)
        with self._reader.transaction(), self._reader.cursor(name="csi_copy") as cursor:
            cursor.itersize = AT_ONCE
            cursor.execute(f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {order}")
            yield from cursor

    def append(self, table: Table, rows: Sequence[Row]) -> None:
        """Where nothing was before: the quick way in."""
        sql = f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN"
        with store.writing(), database.cursor().copy(sql) as stream:
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
            store.run("SELECT setval(pg_get_serial_sequence(?, 'id'), ?)", table, value)

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
    """Make the target what the file is, and prove it. Returns what became of each table, and how many texts had to be
    mended. `is_last`: nobody may have written to the file meanwhile, and the copy is complete."""
    store.open_database(url)
    with _said(url):
        store.migrate()
        with closing(SqliteSource(path)) as source, store.connection(), closing(PostgresTarget(url)) as target:
            _be_alone()
            tables = source.tables()
            copy_marker.begin(origin, now(), is_empty=all(map(target.is_empty, tables)))
            done = _mirror(source, target, tables, notice)
            if is_last:
                _refuse_written(source)
                copy_marker.finish(origin, now())
            return done, source.mended


def _mirror(
    source: SqliteSource, target: PostgresTarget, tables: list[Table], notice: Callable[[int, int], None]
) -> list[CopiedTable]:
    total, passed = 2 * sum(source.count(table) for table in tables), 0

    def watched(rows: Iterator[Row]) -> Iterator[Row]:
        nonlocal passed
        for row in rows:
            passed += 1
            if passed % AT_ONCE == 0:
                notice(passed, total)
            yield row

    # Children go first and come last: no row ever refers to one that is not there.
    removed = {table.name: _remove_gone(source, target, table) for table in reversed(tables)}
    for table in tables:  # before anybody reads it: making a month waits for whoever does
        for month in source.months(table):
            partitions.ensure_partition(table.name, partitions.month_starts(month))
    written = {table.name: _write_news(watched(source.rows(table)), target, table) for table in tables}
    target.set_sequences(source.sequences())
    mended, proofs = source.mended, [_prove(watched(source.rows(table)), target, table) for table in tables]
    source.mended = mended  # they were met again
    notice(total, total)
    return [CopiedTable(name, rows, written[name], removed[name], digest) for name, rows, digest in proofs]


def _remove_gone(source: SqliteSource, target: PostgresTarget, table: Table) -> int:
    """Rows that the source does not have any more. An empty target costs nothing."""
    if target.is_empty(table):
        return 0
    met, removed = source.mended, 0
    found = _differences(table, source.rows(table), target.rows(table))
    gone = (table.key_of(there) for here, there in found if here is None and there is not None)
    for keys in _by_thousands(gone):
        target.remove(table, keys)
        removed += len(keys)
    source.mended = met
    return removed


def _write_news(ours: Iterator[Row], target: PostgresTarget, table: Table) -> int:
    put, written = target.append if target.is_empty(table) else target.write, 0
    news = (here for here, _ in _differences(table, ours, target.rows(table)) if here is not None)
    for rows in _by_thousands(news):
        put(table, rows)
        written += len(rows)
    return written


def _differences(table: Table, ours: Iterator[Row], theirs: Iterator[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Pairs of rows of the same key that are not the same; None where one side has none."""
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
    """The comparison rests on it, and a key with NUL in it would break it unseen."""
    last: Row | None = None
    for row in rows:
        key = table.key_of(row)
        if None in key or (last is not None and key <= last):
            raise StoreError(
                f"{table.name}: a key has NUL, broken UTF-8 or nothing in it, which PostgreSQL cannot hold; "
                f"correct or delete that row, {last!r} or {key!r}"
            )
        last = key
        yield row


def _prove(ours: Iterator[Row], target: PostgresTarget, table: Table) -> tuple[str, int, str]:
    """The same rows on both sides, each read anew from beginning to end."""
    here, there = _digest(ours), _digest(target.rows(table))
    if here != there:
        raise StoreError(f"{table.name}: {here[0]:,} rows here and {there[0]:,} there do not agree; run it again")
    return table.name, *here


def _digest(rows: Iterator[Row]) -> tuple[int, str]:
    number, digest = 0, hashlib.sha256()
    for number, row in enumerate(rows, 1):  # noqa: B007 it is the count
        digest.update(json.dumps(row).encode())
    return number, digest.hexdigest()


def _by_thousands(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while found := list(islice(rows, AT_ONCE)):
        yield found


def _run_many(sql: str, rows: Sequence[Row]) -> None:
    """In one transaction, and without waiting for each answer."""
    with store.writing():
        database.cursor().executemany(sql, rows)


def _be_alone() -> None:
    """Until the connection ends, however it ends."""
    if not store.fetch("SELECT pg_try_advisory_lock(?)", _LOCK)[0][0]:
        raise StoreError("another copy into the target is under way; wait for its end")


def _refuse_written(source: SqliteSource) -> None:
    if source.was_written_to():
        raise StoreError(
            "somebody wrote to the source during the copy (the sidecar, a command): stop it and run this again; "
            "only what changed is written"
        )


@contextmanager
def _said(url: str) -> Iterator[None]:
    """Trouble with either side as one sentence without the password."""
    import psycopg

    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"the source cannot be read: {error}") from error
    except StoreError as error:
        raise StoreError(f"copy to {hide_password(url)}: {_without_password(error, url)}") from error
    except (PeeweeException, psycopg.Error) as error:
        said = f"copy to {hide_password(url)} stopped: {_without_password(error, url)}"
        raise StoreError(f"{said}; what is there stays: run it again and it goes on") from error


def _without_password(error: Exception, url: str) -> str:
    said, password = " ".join(str(error).split())[:400], url_password(url)
    return said.replace(password, MASK) if password else said
