"""Put a backup in the place of the SQLite database, which is kept."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from csi import clock
from csi.config.settings import Settings, looks_like_postgres
from csi.errors import StoreError
from csi.sql import give_to_owner_of_directory, make_private_dir
from csi.store import damage, db
from csi.worker_lock import without_worker

REMEDY = "stop worker and sidecar before the restore"


@dataclass(frozen=True)
class Restored:
    """`newest`: when the backup's last event was seen. `kept`: the old file's new name; None: there was none."""

    events: int
    newest: str | None
    kept: Path | None = None


def restore(settings: Settings, backup: Path, now: float, *, dry_run: bool) -> Restored:
    """Copy the backup beside the database, check it and bring it up to date; then exchange the files.

    Killed before the exchange, it leaves the database as it was, and another run starts from the beginning.
    """
    url = settings.csi.database_url
    if looks_like_postgres(url):
        raise StoreError("this database is PostgreSQL: restore a dump with its own tools (pg_restore)")
    path = Path(url)
    if path.exists() and backup.samefile(path):
        raise StoreError(f"{backup} is the database itself; name a backup: csi db backup writes them")
    make_private_dir(settings.csi.state_dir)
    with without_worker(settings.csi.state_dir, REMEDY):
        copy = path.with_name(f"{path.name}.restored")
        _delete(copy)
        try:
            _copy(backup, copy)
            found = _check(backup, copy)
            if dry_run:
                return found
            kept = damage.exchange(path, copy, clock.iso(now).replace(":", "").replace("-", ""), "before-restore")
            damage.forget_damage(settings.csi.state_dir)
        finally:
            _delete(copy)
    return Restored(found.events, found.newest, kept if kept.exists() else None)


def _copy(backup: Path, copy: Path) -> None:
    """By SQLite, so that a backup that has a -wal file is copied whole."""
    try:
        with (
            closing(sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{backup} cannot be read as a SQLite database ({error}); choose another backup") from error
    copy.chmod(0o600)
    give_to_owner_of_directory(copy)


def _check(backup: Path, copy: Path) -> Restored:
    if (fault := damage.find_damage(copy)) is not None:
        raise StoreError(f"{backup} is damaged ({fault}); choose another backup")
    with closing(sqlite3.connect(copy)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"watches", "events", "dedupe_keys"} <= tables:
        raise StoreError(f"{backup} is not a database of CSI: it has no table of watches or events")
    db.open_database(str(copy))
    db.migrate()  # refuses a database of a newer release
    with db.connection():
        ((events, newest),) = db.fetch("SELECT COUNT(*), MAX(first_seen_at) FROM events")
        db.run("PRAGMA journal_mode = delete")  # one file, without a WAL, can be moved
    db.close_writer()
    return Restored(int(events), None if newest is None else clock.iso(newest))


def _delete(copy: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal", ".migrate.lock"):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)
