"""Copy the database from SQLite to PostgreSQL, with the worker stopped or as a snapshot while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from csi import clock
from csi.config.settings import Settings, looks_like_postgres
from csi.errors import StoreError
from csi.store import copy_tables, db
from csi.store.copy_tables import CopiedTable
from csi.worker_lock import without_worker

SNAPSHOT = "copy-snapshot.db"
REMEDY = "stop it, or copy a snapshot now with --live and the rest when it is stopped"


@dataclass(frozen=True)
class CopyReport:
    """What was copied. Not `complete` means a snapshot: another run must bring it up to date."""

    source: str
    complete: bool
    tables: tuple[CopiedTable, ...]
    mended: int
    """Texts that PostgreSQL cannot store unchanged."""


def copy_database(settings: Settings, target: str, *, live: bool, notice: Callable[[int, int], None]) -> CopyReport:
    """Make the target equal to this installation's database, and verify it. StoreError says why it cannot be copied."""
    url = settings.csi.database_url
    if looks_like_postgres(url):
        raise StoreError("csi.database is already PostgreSQL; use pg_dump and pg_restore to move it")
    if not Path(url).exists():
        raise StoreError(f"there is no database at {url}; check --config")
    db.open_database(url)
    if missing := db.pending_migrations():
        raise StoreError(f"the schema of {url} lacks {', '.join(missing)}: run csi db migrate first")
    with _snapshot(Path(url)) if live else without_worker(settings.csi.state_dir, REMEDY):
        readable = Path(url).with_name(SNAPSHOT) if live else Path(url)
        tables, mended = copy_tables.copy(
            readable, target, origin=str(Path(url).resolve()), now=clock.now, is_last=not live, notice=notice
        )
    return CopyReport(url, not live, tuple(tables), mended)


@contextmanager
def _snapshot(path: Path) -> Iterator[None]:
    """A copy beside the database, where the disk has room. A snapshot that a killed run left behind is replaced."""
    copied = path.with_name(SNAPSHOT)
    copied.unlink(missing_ok=True)
    try:
        db.backup(copied)
        yield
    finally:
        copied.unlink(missing_ok=True)
