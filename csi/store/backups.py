"""The result of each backup; status pages show the last ones."""

from dataclasses import dataclass

from csi.store.db import changed, fetch_one, number, run

KEPT = 100
SAME_FAILURE_SECONDS = 600.0


@dataclass(frozen=True)
class Backup:
    """One backup. `error` None: it was written and checked."""

    at: float
    target: str | None
    seconds: float | None
    bytes: int | None
    error: str | None


@dataclass(frozen=True)
class BackupRecord:
    """What is known of the backups of this database."""

    known_since: float | None = None
    """Backups are recorded since then. None: no worker has started on this schema, or none are made by csi."""
    last_good: Backup | None = None
    last_failed: Backup | None = None
    """The last one, if it failed; None: a good one followed."""
    failing_since: float | None = None


_COLUMNS = "at, target, seconds, bytes, error"


def note_expected(now: float) -> None:
    """Record that backups are expected from now on; once for a database."""
    if not number("SELECT COUNT(*) FROM backups"):
        run("INSERT INTO backups (at, result) VALUES (?, 'expected')", now)


def note(backup: Backup) -> None:
    result = "ok" if backup.error is None else "failed"
    values = (backup.at, result, backup.target, backup.seconds, backup.bytes, backup.error)
    run("INSERT INTO backups (at, result, target, seconds, bytes, error) VALUES (?, ?, ?, ?, ?, ?)", *values)
    # The first row says since when backups are recorded, and the newest good one is needed however long ago it was.
    changed(
        "DELETE FROM backups WHERE id <= (SELECT MAX(id) FROM backups) - ? AND id > (SELECT MIN(id) FROM backups) "
        "AND id <> (SELECT COALESCE(MAX(id), 0) FROM backups WHERE result = 'ok')",
        KEPT,
    )


def note_interrupted(error: str, now: float) -> bool:
    """Record that a backup ended without recording its result. False: its failure is recorded already."""
    last = fetch_one(Backup, f"SELECT {_COLUMNS} FROM backups ORDER BY id DESC LIMIT 1")
    if last is not None and last.error is not None and now - last.at < SAME_FAILURE_SECONDS:
        return False
    note(Backup(now, None, None, None, error))
    return True


def record() -> BackupRecord:
    good = fetch_one(Backup, f"SELECT {_COLUMNS} FROM backups WHERE result = 'ok' ORDER BY id DESC LIMIT 1")
    after = "result = 'failed' AND id > (SELECT COALESCE(MAX(id), 0) FROM backups WHERE result = 'ok')"
    failed = fetch_one(Backup, f"SELECT {_COLUMNS} FROM backups WHERE {after} ORDER BY id DESC LIMIT 1")
    first = fetch_one(Backup, f"SELECT {_COLUMNS} FROM backups WHERE {after} ORDER BY id LIMIT 1")
    known = fetch_one(Backup, f"SELECT {_COLUMNS} FROM backups ORDER BY id LIMIT 1")
    return BackupRecord(known.at if known else None, good, failed, first.at if first else None)
