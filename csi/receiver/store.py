"""What the receiver remembers: each signal once, each request for as long as it could be replayed."""

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from csi.errors import StoreError
from csi.receiver.batch import Batch, Item, Verdict, status_of
from csi.receiver.request_error import RefusalError

SCHEMA_VERSION = 2
APPLICATION_ID = 0x43534952  # "CSIR", so that no other program's file is mistaken for ours

_SIGNALS = """
CREATE TABLE signals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL UNIQUE,
    dedupe_key TEXT NOT NULL,
    source TEXT NOT NULL,
    event_type TEXT NOT NULL,
    occurred_at TEXT NOT NULL,
    received_by_csi_at TEXT NOT NULL,
    first_received_at REAL NOT NULL,
    batch_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    pipeline TEXT,
    event_json TEXT NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX signals_dedupe_key ON signals (dedupe_key);
CREATE INDEX signals_first_received_at ON signals (first_received_at)
"""
"""`seq` is the order of arrival: whoever processes signals remembers the last one they took."""

_SCHEMA = (
    _SIGNALS
    + """;
CREATE TABLE requests (
    request_id TEXT PRIMARY KEY,
    received_at REAL NOT NULL,
    batch_id TEXT NOT NULL,
    status INTEGER NOT NULL,
    events INTEGER NOT NULL,
    body_sha256 TEXT NOT NULL
);
CREATE INDEX requests_received_at ON requests (received_at);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)
"""
)

_COLUMNS = """event_id, dedupe_key, source, event_type, occurred_at, received_by_csi_at, first_received_at, batch_id,
instance_id, pipeline, event_json, deliveries"""

_FROM_VERSION_1 = f"""
ALTER TABLE signals RENAME TO signals_1;
DROP INDEX signals_dedupe_key;
DROP INDEX signals_first_received_at;
{_SIGNALS};
INSERT INTO signals ({_COLUMNS}) SELECT {_COLUMNS} FROM signals_1 ORDER BY first_received_at, rowid;
DROP TABLE signals_1
"""  # noqa: S608 names of our own

_SAVE = """
INSERT INTO signals (event_id, dedupe_key, source, event_type, occurred_at, received_by_csi_at,
                     first_received_at, batch_id, instance_id, pipeline, event_json)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (event_id) DO UPDATE SET deliveries = deliveries + 1
RETURNING deliveries
"""

_COUNT = """
INSERT INTO counters (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = value + excluded.value
"""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@dataclass(frozen=True)
class Arrival:
    """One verified request: its id, a hash of its bytes, and when it came."""

    request_id: str
    body_sha256: str
    at: float


class SignalStore:
    """One SQLite file behind one connection, which threads take in turns."""

    def __init__(self, path: Path, *, busy_timeout: float = 10, remember: float = 660) -> None:
        """`remember` is how long a request id is kept: as long as its timestamp could still be valid."""
        self._lock = threading.Lock()
        self._patience = busy_timeout
        self._remember = remember
        self._db = _open(path, busy_timeout)

    def accept(self, batch: Batch, arrival: Arrival) -> list[Verdict]:
        """Store what is new and count what is not, in one transaction; a verdict for each item.

        A request id seen before is a RefusalError and changes nothing: 409 only for the same bytes, since the
        sender reads 409 as delivered, and other bytes under an old id were not.
        """
        with self._transaction() as db:
            self._check_replay(db, arrival)
            verdicts = [_save_item(db, batch, item, arrival.at) for item in batch.items]
            _note_request(db, batch, arrival, verdicts)
            _count_verdicts(db, verdicts)
        return verdicts

    def counts(self) -> dict[str, int]:
        """Signals stored, times one arrived, and events that were refused; since the file was made."""
        with self._turn() as db:
            found = dict(db.execute("SELECT name, value FROM counters").fetchall())
        return {name: found.get(name, 0) for name in ("accepted", "deliveries", "invalid")}

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _check_replay(self, db: sqlite3.Connection, arrival: Arrival) -> None:
        db.execute("DELETE FROM requests WHERE received_at < ?", (arrival.at - self._remember,))
        query = "SELECT body_sha256 FROM requests WHERE request_id = ?"
        row = db.execute(query, (arrival.request_id,)).fetchone()
        if row is not None and row[0] == arrival.body_sha256:
            raise RefusalError(409, "replayed_request")
        if row is not None:
            raise RefusalError(400, "reused_request_id")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn() as db:
            _undo(db)  # what a rollback that failed on a full disk may have left
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                _undo(db)

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time. A database that cannot work now is a 503."""
        if not self._lock.acquire(timeout=self._patience):
            raise RefusalError(503, "storage_busy", retry_after=5)
        try:
            yield self._db
        except sqlite3.Error as error:
            raise _refuse(error) from error
        finally:
            self._lock.release()


def _undo(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _refuse(error: sqlite3.Error) -> RefusalError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind, the rest details
    if code in _BUSY:
        return RefusalError(503, "storage_busy", retry_after=5)
    return RefusalError(503, "storage_full" if code == sqlite3.SQLITE_FULL else "storage_failed", retry_after=60)


def _save_item(db: sqlite3.Connection, batch: Batch, item: Item, now: float) -> Verdict:
    event = item.event
    if event is None:
        return "invalid"
    what = (event.event_id, event.dedupe_key, event.source, event.event_type)
    when = (event.occurred_at, event.received_at, now)
    whence = (batch.batch_id, batch.instance_id, item.pipeline)
    deliveries = db.execute(_SAVE, (*what, *when, *whence, item.text)).fetchall()[0][0]
    return "accepted" if deliveries == 1 else "duplicate"


def _note_request(db: sqlite3.Connection, batch: Batch, arrival: Arrival, verdicts: list[Verdict]) -> None:
    mark = (arrival.request_id, arrival.at, batch.batch_id)
    outcome = (status_of(verdicts), len(verdicts), arrival.body_sha256)
    db.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?)", (*mark, *outcome))


def _count_verdicts(db: sqlite3.Connection, verdicts: list[Verdict]) -> None:
    seen = Counter(verdicts)
    counts = {
        "accepted": seen["accepted"],
        "deliveries": seen["accepted"] + seen["duplicate"],
        "invalid": seen["invalid"],
    }
    db.executemany(_COUNT, [pair for pair in counts.items() if pair[1]])


def _open(path: Path, busy_timeout: float) -> sqlite3.Connection:
    try:
        _make_private(path)
        db = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: the receiver's database cannot be opened: {error}") from error
    try:
        _prepare(db, path)
    except sqlite3.Error as error:
        db.close()
        raise StoreError(f"{path}: not usable as the receiver's database: {error}") from error
    except StoreError:
        db.close()
        raise
    return db


def _make_private(path: Path) -> None:
    """The file belongs to us alone; a directory that we make does too, one that exists is left as it is."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        # Only a new file is opened here: closing a second handle would drop SQLite's locks in this process.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    path.chmod(0o600)


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("BEGIN IMMEDIATE")
    version = _read_version(db, path)
    if version < SCHEMA_VERSION:
        _write_tables(db, _FROM_VERSION_1 if version else _SCHEMA)
    db.execute("COMMIT")
    _use_wal(db)
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA journal_size_limit = {32 * 1024 * 1024}")


def _use_wal(db: sqlite3.Connection) -> None:
    """The switch needs the file for itself and does not wait for it, as when two receivers start at once."""
    for _ in range(50):
        with suppress(sqlite3.OperationalError):
            db.execute("PRAGMA journal_mode = WAL")
            return
        time.sleep(0.02)
    db.execute("PRAGMA journal_mode = WAL")


def _write_tables(db: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _read_version(db: sqlite3.Connection, path: Path) -> int:
    """0 for a new, empty file. A file of somebody else or of a later program is a StoreError."""
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner != APPLICATION_ID and (owner or version or tables):
        raise StoreError(f"{path}: this database belongs to another program; name another file with --db")
    if version > SCHEMA_VERSION:
        raise StoreError(f"{path}: written by a newer csi (schema {version}); upgrade csi")
    return version
