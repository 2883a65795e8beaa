"""The receiver's database, read only: the one place where processing looks at what was delivered."""

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csi.errors import StoreError


@dataclass(frozen=True)
class Received:
    """One signal as the receiver stored it."""

    seq: int
    event_id: str
    pipeline: str | None
    received_at: float
    event: dict[str, Any]


def read_after(path: Path, seq: int, limit: int) -> list[Received]:
    """Signals in the order of their arrival. Nothing while there is no database yet: no signal has come."""
    if not path.exists():
        return []
    sql = """SELECT seq, event_id, pipeline, first_received_at, event_json FROM signals
             WHERE seq > ? ORDER BY seq LIMIT ?"""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as db:
            rows = db.execute(sql, (seq, limit)).fetchall()
            return [Received(row[0], row[1], row[2], row[3], json.loads(row[4])) for row in rows]
    except sqlite3.OperationalError as error:
        if "no such" in str(error):
            raise StoreError(
                f"{path}: not a receiver's database of this version; start csi receiver on it once"
            ) from error
        raise StoreError(f"{path}: the receiver's database cannot be read: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: the receiver's database cannot be read: {error}") from error


def newest(path: Path) -> int:
    """The number of the last signal; 0 when there is none."""
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as db:
            return int(db.execute("SELECT COALESCE(MAX(seq), 0) FROM signals").fetchone()[0])
    except sqlite3.DatabaseError:
        return 0
