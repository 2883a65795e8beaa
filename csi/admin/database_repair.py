"""Repair a damaged SQLite database: save every row that can be read, and read the sources again for the rest."""

from dataclasses import dataclass
from pathlib import Path

from csi import clock
from csi.errors import StoreError
from csi.runtime import Runtime
from csi.store import damage, db
from csi.store.damage import TableRepair
from csi.worker_lock import without_worker

REMEDY = "stop worker and sidecar before the repair"


@dataclass(frozen=True)
class RepairReport:
    """`damage` None: no damage was found, and nothing was done."""

    damage: str | None
    tables: tuple[TableRepair, ...] = ()
    consequences: tuple[tuple[str, int], ...] = ()
    kept: str | None = None
    """Where the damaged file is now. None: it was not replaced."""


def repair(rt: Runtime, *, dry_run: bool) -> RepairReport:
    """Recover into a new file, check it, and put it in the place of the damaged one, which is kept.

    Killed before the exchange, it leaves the damaged file as it was, and another run starts from the beginning.
    """
    path = Path(rt.settings.csi.database_url)
    with without_worker(rt.settings.csi.state_dir, REMEDY):
        found = damage.find_damage(path, rt.settings.csi.state_dir)
        if found is None:
            damage.forget_damage(rt.settings.csi.state_dir)
            return RepairReport(None)
        copy = path.with_name(f"{path.name}.repaired")
        _delete(copy)
        tables = tuple(damage.recover(path, copy))
        if dry_run:
            _delete(copy)
            return RepairReport(found, tables)
        # Bring the copy up to date, make its rows agree with each other, and check the file as a whole.
        db.open_database(str(copy))
        db.migrate()
        done = damage.make_consistent(
            list(rt.destinations), rt.streaming_sources(), rt.now(), rt.settings.retention.events_days
        )
        db.close_writer()
        with db.connection():
            db.run("PRAGMA journal_mode = delete")  # one file, without a WAL, can be moved
        if (fault := damage.find_damage(copy)) is not None:
            raise StoreError(
                f"{copy}: the repaired copy is damaged, too ({fault}); check the disk, restore the last backup"
            )
        consequences = done
        kept = damage.exchange(path, copy, clock.iso(rt.now()).replace(":", "").replace("-", ""))
        damage.forget_damage(rt.settings.csi.state_dir)
        return RepairReport(found, tables, tuple(consequences.items()), str(kept))


def _delete(copy: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal", ".migrate.lock"):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)
