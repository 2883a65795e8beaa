"""Moving an installation from SQLite to PostgreSQL: at rest, or a snapshot of it while the worker goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from csi import clock
from csi.config.settings import Settings, looks_like_postgres
from csi.errors import StoreError
from csi.store import copy_tables, db
from csi.store.copy_tables import CopiedTable
from csi.store.worker_lock import without_worker

SNAPSHOT = "copy-snapshot.db"
REMEDY = "stop it, or copy most of it now with --live and the rest when it is stopped"


@dataclass(frozen=True)
class CopyReport:
    """What was copied. Not `complete`: a snapshot, which another copy brings up to date."""

    source: str
    complete: bool
    tables: tuple[CopiedTable, ...]
    mended: int
    """Texts that PostgreSQL cannot hold as they were."""


def copy_database(settings: Settings, target: str, *, live: bool, notice: Callable[[int, int], None]) -> CopyReport:
    """Make the target what this installation's database is, and prove it."""
    path = _source(settings)
    with _snapshot(path) if live else _at_rest(settings, path) as readable:
        tables, mended = copy_tables.copy(
            readable, target, origin=str(path.resolve()), now=clock.now, is_last=not live, notice=notice
        )
    return CopyReport(str(path), not live, tuple(tables), mended)


def _source(settings: Settings) -> Path:
    """The file, made by this version of csi. StoreError says why it cannot be copied."""
    url = settings.csi.database_url
    if looks_like_postgres(url):
        raise StoreError("csi.database is PostgreSQL already; use pg_dump and pg_restore to move it")
    if not Path(url).exists():
        raise StoreError(f"there is no database at {url}; is --config right?")
    db.open_database(url)
    if missing := db.pending_migrations():
        raise StoreError(f"the schema of {url} lacks {', '.join(missing)}: run csi db migrate first")
    return Path(url)


@contextmanager
def _at_rest(settings: Settings, path: Path) -> Iterator[Path]:
    with without_worker(settings.csi.state_dir, REMEDY):
        yield path


@contextmanager
def _snapshot(path: Path) -> Iterator[Path]:
    """Beside the database, where there is room for as much again. One that a kill left behind is replaced."""
    copied = path.with_name(SNAPSHOT)
    copied.unlink(missing_ok=True)
    try:
        db.backup(copied)
        yield copied
    finally:
        copied.unlink(missing_ok=True)
