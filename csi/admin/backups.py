"""Make a backup of the database, and record its result."""

from contextlib import suppress
from pathlib import Path

from csi import clock
from csi.errors import StoreError
from csi.store import backups, db
from csi.store.backups import Backup


def make(target: Path) -> Backup:
    """Write a checked copy to `target`. StoreError when that fails; the failure is recorded, too."""
    now, began = clock.now(), clock.steady()
    try:
        db.backup(target)
        size = target.stat().st_size
    except StoreError as error:
        _record(Backup(now, str(target), clock.steady() - began, None, " ".join(str(error).split())[:300]))
        raise
    done = Backup(now, str(target), clock.steady() - began, size, None)
    _record(done)
    return done


def last_good() -> Backup | None:
    """The last backup that was written and checked."""
    with db.reading():
        return backups.record().last_good


def note_interrupted(error: str) -> bool:
    """Record that a backup ended without recording its result, such as one that was killed. False: it did."""
    with db.connection(), db.writing():
        return backups.note_interrupted(" ".join(error.split())[:300], clock.now())


def _record(done: Backup) -> None:
    """Best effort: a copy is good without its record, and a full disk that fails the backup fails the record, too."""
    with suppress(StoreError, db.DatabaseError):
        if not db.pending_migrations():
            with db.connection(), db.writing():
                backups.note(done)
