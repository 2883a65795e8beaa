"""The receiver's database, and its optional ledger, an append-only file for tests and the demo.

The database has each signal once, and each request id for as long as a replay could be valid.
"""

import json
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
from csi.receiver.batch import EventVerdict, ReceivedBatch, ReceivedEvent, fingerprint, status_of
from csi.receiver.request import RequestError
from csi.sql import create_private_file

SCHEMA_VERSION = 2
APPLICATION_ID = 0x43534952  # "CSIR": tells our files from those of other programs

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
"""`seq` is the order of arrival: a consumer stores the last `seq` that it read."""

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
"""  # noqa: S608 constants only

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

_PRUNE = """
DELETE FROM signals WHERE seq IN (
    SELECT seq FROM signals WHERE first_received_at < ? AND seq < (SELECT MAX(seq) FROM signals)
    ORDER BY first_received_at LIMIT ?)
"""
DAY, PRUNE_EVERY, PRUNED = 86_400.0, 3600.0, 500

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@dataclass(frozen=True)
class VerifiedRequest:
    """One verified request: its id, a hash of its bytes, and its time of request."""

    request_id: str
    body_sha256: str
    at: float


class SignalStore:
    """One SQLite file and one connection, which one thread uses at a time."""

    def __init__(self, path: Path, *, busy_timeout: float = 10, remember: float = 660, retention_days: int = 0) -> None:
        """`remember`: seconds for which a request id is kept, as long as its timestamp could still be valid.
        `retention_days`: how long signals are kept; 0: for ever."""
        self._retention_days, self._pruned_at = retention_days, float("-inf")
        self._lock = threading.Lock()
        self._lock_timeout = busy_timeout
        self._remember = remember
        self._db = _open(path, busy_timeout)

    def accept(self, batch: ReceivedBatch, request: VerifiedRequest) -> list[EventVerdict]:
        """Store new events and count duplicates in one transaction; returns a verdict for each event.

        A known request id raises RequestError and changes nothing. The status is 409 only for the same bytes: the
        sender reads 409 as delivered, which other bytes under a known id were not.
        """
        with self._transaction() as db:
            db.execute("DELETE FROM requests WHERE received_at < ?", (request.at - self._remember,))
            known = "SELECT body_sha256 FROM requests WHERE request_id = ?"
            row = db.execute(known, (request.request_id,)).fetchone()
            if row is not None and row[0] == request.body_sha256:
                raise RequestError(409, "replayed_request")
            if row is not None:
                raise RequestError(400, "reused_request_id")
            verdicts = [_save_event(db, batch, item, request.at) for item in batch.items]
            facts = (request.request_id, request.at, batch.batch_id)
            outcome = (status_of(verdicts), len(verdicts), request.body_sha256)
            db.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?)", (*facts, *outcome))
            seen = Counter(verdicts)
            counts = {
                "accepted": seen["accepted"],
                "deliveries": seen["accepted"] + seen["duplicate"],
                "invalid": seen["invalid"],
            }
            db.executemany(_COUNT, [pair for pair in counts.items() if pair[1]])
            # Hourly, at most PRUNED signals at once. The newest one stays: a reader's position is its `seq`.
            if self._retention_days > 0 and not 0 <= request.at - self._pruned_at < PRUNE_EVERY:
                gone = db.execute(_PRUNE, (request.at - self._retention_days * DAY, PRUNED)).rowcount
                self._pruned_at = request.at if gone < PRUNED else self._pruned_at
        return verdicts

    def counts(self) -> dict[str, int]:
        """Signals stored, deliveries including duplicates, and invalid events, since the file was created."""
        with self._connection() as db:
            found = dict(db.execute("SELECT name, value FROM counters").fetchall())
        return {name: found.get(name, 0) for name in ("accepted", "deliveries", "invalid")}

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as db:
            _rollback(db)  # a rollback that failed on a full disk leaves its transaction open
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                _rollback(db)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time. A database error becomes a RequestError with status 503."""
        if not self._lock.acquire(timeout=self._lock_timeout):
            raise RequestError(503, "storage_busy", retry_after=5)
        try:
            yield self._db
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind of error
            if code in _BUSY:
                raise RequestError(503, "storage_busy", retry_after=5) from error
            reason = "storage_full" if code == sqlite3.SQLITE_FULL else "storage_failed"
            raise RequestError(503, reason, retry_after=60) from error
        finally:
            self._lock.release()


class DeliveryLedger:
    """One JSON line per event per verified request, written before the request is answered."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: the ledger cannot be opened: {error.strerror}") from error

    def write(self, batch: ReceivedBatch, request: VerifiedRequest, verdicts: list[EventVerdict]) -> None:
        """One write for the whole batch, so that lines of two requests never mix."""
        lines = []
        for item, verdict in zip(batch.items, verdicts, strict=True):
            event = item.raw if isinstance(item.raw, dict) else {}
            event_id, emitted_at = event.get("event_id"), event.get("emitted_at")
            line = {
                "at": request.at,
                "event_id": event_id if isinstance(event_id, str) else None,
                "batch_id": batch.batch_id,
                "request_id": request.request_id,
                "verdict": verdict,
                "emitted_at": emitted_at if isinstance(emitted_at, str) else None,
                "body_sha256": fingerprint(item.raw),
            }
            lines.append(json.dumps(line) + "\n")
        text = "".join(lines).encode()
        try:
            written = os.write(self._handle, text)
        except OSError as error:
            raise RequestError(503, "storage_failed", retry_after=60) from error
        if written != len(text):
            raise RequestError(503, "storage_full", retry_after=60)

    def close(self) -> None:
        os.close(self._handle)


def _rollback(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _save_event(db: sqlite3.Connection, batch: ReceivedBatch, item: ReceivedEvent, now: float) -> EventVerdict:
    event = item.event
    if event is None:
        return "invalid"
    keys = (event.event_id, event.dedupe_key, event.source, event.event_type)
    times = (event.occurred_at, event.received_at, now)
    origin = (batch.batch_id, batch.instance_id, item.pipeline)
    deliveries = db.execute(_SAVE, (*keys, *times, *origin, item.text)).fetchall()[0][0]
    return "accepted" if deliveries == 1 else "duplicate"


def _open(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """The file belongs to our user alone; a directory that exists keeps its mode."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_private_file(path)
        path.chmod(0o600)
        db = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: the receiver's database cannot be opened: {error}") from error
    try:
        _migrate(db, path)
        _use_wal(db)
        db.execute("PRAGMA synchronous = FULL")  # a 200 promises that the batch survives a power cut
        db.execute(f"PRAGMA journal_size_limit = {32 * 1024 * 1024}")
    except sqlite3.Error as error:
        db.close()
        raise StoreError(f"{path}: not usable as the receiver's database: {error}") from error
    except StoreError:
        db.close()
        raise
    return db


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """One transaction: a crash or an error in it leaves the old schema."""
    db.execute("BEGIN IMMEDIATE")
    # 0 for a new, empty file. StoreError for a file of another program or of a newer version.
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if owner != APPLICATION_ID and (owner or version or tables):
        raise StoreError(f"{path}: this database belongs to another program; name another file with --db")
    if version > SCHEMA_VERSION:
        raise StoreError(f"{path}: written by a newer csi (schema {version}); upgrade csi")
    if version < SCHEMA_VERSION:
        for statement in (_FROM_VERSION_1 if version else _SCHEMA).split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.execute("COMMIT")


def _use_wal(db: sqlite3.Connection) -> None:
    """The switch needs an exclusive lock and does not wait for it, for example when two receivers start together."""
    for _ in range(50):
        with suppress(sqlite3.OperationalError):
            db.execute("PRAGMA journal_mode = WAL")
            return
        time.sleep(0.02)
    db.execute("PRAGMA journal_mode = WAL")
