"""Damage of the SQLite file: find it, tell other processes of it, and recover the rows that can still be read.

The worker that meets the first damaged page writes a file into the state directory and ends: the sidecar, whose own
reads may miss the damaged page, reports it at once. A start whose check finds no damage deletes the file.
"""

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from csi.errors import StoreError
from csi.sql import create_private_file, give_to_owner_of_directory
from csi.store import database_faults, db, outbox
from csi.store.database_faults import DatabaseFault

CHUNK = 500
LAST_ROWID = 2**63 - 1


def find_damage(path: Path, state_dir: Path | None = None) -> str | None:
    """The first fault that SQLite's check of the file finds; None: no fault, or another process prevents the check.

    Where `state_dir` says that damage was met before, rows are compared with their indexes, too, which takes longer.
    """
    pragma = "integrity_check(1)" if state_dir and noted_fault(state_dir) else "quick_check(1)"
    try:
        with closing(_open_read_only(path)) as connection:
            ((found,),) = connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.DatabaseError as error:
        return str(error) if database_faults.identify(error) is database_faults.DAMAGED else None
    return None if found == "ok" else " ".join(str(found).split())[:300]


def refuse_damaged(path: Path, state_dir: Path) -> None:
    """At the start of the worker: StoreError where the file is damaged. A file that is not there is not damaged."""
    if not path.exists():
        return
    if damage := find_damage(path, state_dir):
        note_damage(state_dir, damage)
        fault = database_faults.DAMAGED
        raise StoreError(f"the database {path} is damaged: {damage}; {fault.remedy}")
    forget_damage(state_dir)


def damage_file(state_dir: Path) -> Path:
    # Never beside the database: a wrong setting may name any file of another program.
    return state_dir / "csi.db.damaged"


def note_damage(state_dir: Path, text: str) -> None:
    """Best effort: the disk may be failing altogether."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError), open(os.open(damage_file(state_dir), flags, 0o600), "w") as file:
        file.write(f"{text[:300]}\n")
        give_to_owner_of_directory(damage_file(state_dir), file.fileno())


def noted_fault(state_dir: Path) -> DatabaseFault | None:
    return database_faults.DAMAGED if damage_file(state_dir).exists() else None


def forget_damage(state_dir: Path) -> None:
    damage_file(state_dir).unlink(missing_ok=True)


@dataclass
class TableRepair:
    """What became of one table. `lost` None: the number of rows it had cannot be read any more."""

    table: str
    rows: int = 0
    lost: int | None = None
    gaps: list[str] = field(default_factory=list)
    """Ranges of row numbers that cannot be read."""


def recover(damaged: Path, target: Path) -> list[TableRepair]:
    """Copy every row that can be read into a new database of the same schema. The damaged file is not changed."""
    create_private_file(target)
    try:
        with closing(_open_read_only(damaged)) as old, closing(sqlite3.connect(target)) as new:
            old.text_factory = lambda data: data.decode("utf-8", "replace")
            new.execute("PRAGMA foreign_keys = off")
            tables = _copy_schema(old, new, "table")
            repairs = [_copy_rows(old, new, table) for table in tables]
            new.commit()
            _copy_schema(old, new, "index")
            new.commit()
    except sqlite3.DatabaseError as error:
        target.unlink(missing_ok=True)
        raise StoreError(
            f"{damaged}: its list of tables cannot be read ({error}); restore the last backup instead"
        ) from error
    return repairs


def _copy_schema(old: sqlite3.Connection, new: sqlite3.Connection, kind: str) -> list[str]:
    found = old.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = ? AND sql IS NOT NULL AND name NOT LIKE 'sqlite_%'", (kind,)
    ).fetchall()
    for _, sql in found:
        new.execute(sql)
    return [name for name, _ in found]


def _copy_rows(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> TableRepair:
    repair = TableRepair(table)
    names = [row[1] for row in new.execute(f'PRAGMA table_info("{table}")')]
    listed, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * (len(names) + 1))
    insert = f'INSERT OR IGNORE INTO "{table}" (rowid, {listed}) VALUES ({marks})'
    read = f'SELECT rowid, {listed} FROM "{table}" WHERE rowid >= ? ORDER BY rowid LIMIT ?'
    for rows in _readable(old, read, repair):
        repair.rows += new.executemany(insert, rows).rowcount
    try:  # by the smallest index of the table, which is often readable where the rows are not
        ((total,),) = old.execute(f'SELECT count(*) FROM "{table}"').fetchall()
        repair.lost = max(int(total) - repair.rows, 0)
    except sqlite3.DatabaseError:
        repair.lost = None if repair.gaps else 0
    return repair


def _readable(old: sqlite3.Connection, read: str, repair: TableRepair) -> Iterator[list[tuple[object, ...]]]:
    start, size = -LAST_ROWID, CHUNK
    while True:
        try:
            rows = old.execute(read, (start, size)).fetchall()
        except sqlite3.DatabaseError:
            if size > 1:
                size = max(size // 8, 1)
                continue
            resumed = _next_readable(old, read, start)
            repair.gaps.append(f"{max(start, 0)}–{'end' if resumed is None else resumed - 1}")
            if resumed is None:
                return
            start, size = resumed, CHUNK
            continue
        if not rows:
            return
        yield rows
        start, size = int(str(rows[-1][0])) + 1, min(size * 2, CHUNK)


def _next_readable(old: sqlite3.Connection, read: str, start: int) -> int | None:
    """The first row number after `start` from which rows can be read again. None: none to the end of the table."""

    def probe(number: int) -> int | None:
        try:
            return next((int(row[0]) for row in old.execute(read, (number, 1))), None)
        except sqlite3.DatabaseError:
            return None

    base, step = max(start, 0), 1
    while base + step < LAST_ROWID and probe(base + step) is None:
        step *= 2
    if base + step >= LAST_ROWID:
        return None
    low, high = base + step // 2, base + step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if probe(middle) is not None else (middle + 1, high)
    return probe(high)


def make_consistent(
    destinations: Sequence[str], streaming: Collection[str], now: float, events_days: float
) -> dict[str, int]:
    """Of the open, repaired database: rows whose counterpart was lost are completed, or deleted so that the next read
    of their source makes them again. Every watch is read now and completely. Returns how many rows of each kind."""
    with db.connection(), db.writing():
        done = {
            "outbox entries without their event, deleted": db.changed(
                "DELETE FROM outbox WHERE event_pk NOT IN (SELECT id FROM events)"
            ),
            "pending events that are sent again": 0,
            "dedupe keys of lost events, deleted": db.changed(
                "DELETE FROM dedupe_keys WHERE reason = ? AND first_seen_at > ? "
                "AND key NOT IN (SELECT dedupe_key FROM events)",
                *("emitted", now - events_days * 86_400),
            ),
        }
        lost = (
            "SELECT id, source, tier, watch_id, seq FROM events "
            "WHERE state = 'pending' AND id NOT IN (SELECT event_pk FROM outbox)"
        )
        for event_pk, source, tier, watch_id, seq in db.fetch(lost):
            lane = "stream" if source in streaming else tier
            outbox.put(event_pk, destinations, tier=lane, watch_id=watch_id, seq=seq, due_at=now)
            done["pending events that are sent again"] += 1
        done["watches that are read again"] = db.changed(
            "UPDATE watches SET etag = NULL, last_modified = NULL, probe_json = NULL, walked_at = NULL, "
            "lease_token = NULL, lease_until = NULL, next_poll_at = 0, wake_at = 0"
        )
    return {what: number for what, number in done.items() if number}


def exchange(damaged: Path, repaired: Path, stamp: str, word: str = "damaged") -> Path:
    """Put the repaired file in the place of the damaged one, which is kept under another name with this word."""
    aside = damaged.with_name(f"{damaged.name}.{word}-{stamp}")
    for suffix in ("-wal", "-shm", ""):
        if (file := Path(f"{damaged}{suffix}")).exists():
            os.replace(file, f"{aside}{suffix}")
    os.replace(repaired, damaged)
    Path(f"{repaired}.migrate.lock").unlink(missing_ok=True)
    return aside


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Closing it does not write the WAL into the file."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
