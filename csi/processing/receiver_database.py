"""The receiver's database, read only: the one place where processing looks at what was delivered."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csi.errors import StoreError
from csi.processing.store.signals import Place


@dataclass(frozen=True)
class Received:
    """One signal as the receiver stored it."""

    seq: int
    event_id: str
    pipeline: str | None
    received_at: float
    event: dict[str, Any]


def read_after(path: Path, place: Place, limit: int) -> list[Received]:
    """Signals in the order of their arrival. Nothing while there is no database yet: no signal has come."""
    if not path.exists():
        return []
    sql = """SELECT seq, event_id, pipeline, first_received_at, event_json FROM signals
             WHERE seq > ? ORDER BY seq LIMIT ?"""
    with _reading(path) as db:
        rows = db.execute(sql, (_start(db, place), limit)).fetchall()
        return [Received(row[0], row[1], row[2], row[3], json.loads(row[4])) for row in rows]


def waiting(path: Path, place: Place, most: int) -> int:
    """How many signals nobody has taken over yet; counted up to `most`."""
    if not path.exists():
        return 0
    with _reading(path) as db:
        sql = "SELECT count(*) FROM (SELECT 1 FROM signals WHERE seq > ? LIMIT ?)"
        return int(db.execute(sql, (_start(db, place), most)).fetchone()[0])


def _start(db: sqlite3.Connection, place: Place) -> int:
    """0 where the place is not in this file: it was made anew or restored, and counts from its own beginning.

    What was taken over before is known by its id, so reading it again changes nothing.
    """
    if place.event_id is None:
        return place.seq
    row = db.execute("SELECT event_id FROM signals WHERE seq = ?", (place.seq,)).fetchone()
    return place.seq if row == (place.event_id,) else 0


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as db:
            yield db
    except sqlite3.DatabaseError as error:
        if "no such" in str(error):
            raise StoreError(
                f"{path}: not a receiver's database of this version; start csi receiver on it once"
            ) from error
        raise StoreError(f"{path}: the receiver's database cannot be read: {error}") from error
