"""Whether the database can be written: free space, write-ahead log and write lock, for health checks."""

from dataclasses import dataclass
from pathlib import Path

from csi.errors import StoreError
from csi.runtime import Runtime
from csi.status.worker import WorkerStatus
from csi.store import damage, database_faults, disk
from csi.store.database_faults import DatabaseFault
from csi.store.disk import MB


@dataclass(frozen=True)
class StorageStatus:
    """What health checks say of the database. A note does not make the installation not ready."""

    nearly_full: str | None = None
    fault: DatabaseFault | None = None
    """Why it cannot be written."""
    note: str | None = None
    free_mb: int | None = None
    log_mb: int | None = None


def storage_status(rt: Runtime, worker: WorkerStatus) -> StorageStatus:
    """The write lock is tried only when the worker has stalled: a busy worker needs it more than a health check. What a
    write of this process met last (csi.worker.unstored_alert) counts, too, and damage that another process noted."""
    found, wanted = disk.measure(), rt.settings.csi.min_free_mb
    if found is None:
        return StorageStatus(fault=rt.process.database_fault)
    noted = damage.noted_fault(rt.settings.csi.state_dir)
    fault = noted or (database_faults.READ_ONLY if found.is_read_only else rt.process.database_fault)
    if fault is None and worker.heartbeat is not None and not worker.is_alive:
        try:
            disk.check_write_lock(Path(rt.settings.csi.database_url))
        except StoreError as error:
            fault = database_faults.identify(error)
    return StorageStatus(
        nearly_full=disk.nearly_full(found, wanted) if found.free < wanted * MB else None,
        fault=fault,
        note=disk.long_reader(found) if found.log > disk.LONG_LOG else None,
        free_mb=found.free // MB,
        log_mb=found.log // MB,
    )
