"""Read signals from the receiver's database, read only."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csi.errors import StoreError
from csi.processing.store.received_events import IntakeCursor


@dataclass(frozen=True)
class ReceiverSignal:
    """One signal in the receiver's database."""

    seq: int
    event_id: str
    pipeline: str | None
    received_at: float
    event: dict[str, Any]


def read_after(path: Path, cursor: IntakeCursor, limit: int) -> list[ReceiverSignal]:
    """Signals after the cursor, in order of arrival. Empty while the database does not exist yet."""
    if not path.exists():
        return []
    sql = """SELECT seq, event_id, pipeline, first_received_at, event_json FROM signals
             WHERE seq > ? ORDER BY seq LIMIT ?"""
    with _reading(path) as db:
        rows = db.execute(sql, (_start(db, cursor), limit)).fetchall()
        return [ReceiverSignal(row[0], row[1], row[2], row[3], json.loads(row[4])) for row in rows]


def count_after(path: Path, cursor: IntakeCursor, most: int) -> int:
    """How many signals after the cursor have not been read yet, counted up to `most`."""
    if not path.exists():
        return 0
    with _reading(path) as db:
        sql = "SELECT count(*) FROM (SELECT 1 FROM signals WHERE seq > ? LIMIT ?)"
        return int(db.execute(sql, (_start(db, cursor), most)).fetchone()[0])


def _start(db: sqlite3.Connection, cursor: IntakeCursor) -> int:
    """0 when the cursor's signal is not in this file: the file was recreated or restored and numbers from 1 again.

    Signals that were read before are known by their event id, so reading them again changes nothing.
    """
    if cursor.event_id is None:
        return cursor.seq
    row = db.execute("SELECT event_id FROM signals WHERE seq = ?", (cursor.seq,)).fetchone()
    return cursor.seq if row == (cursor.event_id,) else 0


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as db:
            yield db
    except sqlite3.DatabaseError as error:
        if "no such" in str(error):
            raise StoreError(
                f"{path}: not a receiver's database of this version; start csi receiver with it once to upgrade it"
            ) from error
        raise StoreError(f"{path}: the receiver's database cannot be read: {error}") from error
