"""The state of the disk and the database file: for the log, `/readyz` and `csi doctor` (fault cases 44–52)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from csi.config.settings import Settings, looks_like_postgres
from csi.errors import StoreError
from csi.logs import log
from csi.runtime import Runtime
from csi.store import database_faults, db, disk
from csi.store.disk import MB, DiskSpace

SHORTEN_ABOVE = 34 * MB
"""A log that was started anew keeps up to 32 MB of its file (journal_size_limit)."""


class OldSchema(StoreError):
    """Migrations are missing."""


@dataclass(frozen=True)
class StorageFinding:
    """The result of one check of the storage. `kind` is `ok`, or what is wrong in one word."""

    kind: str
    is_good: bool
    text: str
    remedy: str = ""


def has_room(rt: Runtime) -> bool:
    """False: less than `min_free_mb` is free. Polling stops then, so that stored events can still be delivered."""
    found = disk.measure()
    enough = found is None or found.free >= rt.settings.csi.min_free_mb * MB
    if enough != rt.process.has_room:
        rt.process.has_room = enough
        _log_disk_space(found, rt.settings.csi.min_free_mb)
    return enough


def keep_log_short(rt: Runtime) -> None:
    """Truncate a long write-ahead log. Cheap enough for every pass of the maintenance loop. SQLite restarts the log
    only in a moment without readers, which a busy worker rarely has."""
    found = disk.measure()
    if found is not None and found.log > SHORTEN_ABOVE:
        disk.truncate_wal(Path(rt.settings.csi.database_url))


def watch_log(rt: Runtime) -> None:
    """Log once when another process keeps the write-ahead log long, and once when that is over."""
    found = disk.measure()
    is_long = found is not None and found.log > disk.LONG_LOG
    if is_long != rt.process.has_long_log:
        rt.process.has_long_log = is_long
        size = 0 if found is None else found.log // MB
        if is_long:
            log.warning("another process reads the database for a long time; its write-ahead log grows", wal_mb=size)
        else:
            log.info("write-ahead log is back to its usual size", wal_mb=size)


def check_storage(settings: Settings, *, thorough: bool = False) -> list[StorageFinding]:
    """Every problem of the storage, or one `ok`. Needs no open database and no worker; `thorough` reads every page."""
    url = settings.csi.database_url
    found = list(_check_file(Path(url), settings.csi.min_free_mb)) if not looks_like_postgres(url) else []
    found += _open(url, thorough=thorough)
    # A damaged file is noticed twice.
    return list({finding.kind: finding for finding in found}.values()) or [
        StorageFinding("ok", True, "the database can be read and written, and its schema is known")
    ]


def _check_file(path: Path, wanted: int) -> Iterator[StorageFinding]:
    try:
        found = disk.measure_at(path)
    except StoreError as error:
        yield StorageFinding("unusable", False, str(error), database_faults.READ_ONLY.remedy)
        return
    if found.free < wanted * MB:
        yield StorageFinding("full", False, disk.nearly_full(found, wanted), database_faults.FULL.remedy)
    if found.log > disk.LONG_LOG:
        remedy = "find the process with `fuser -v` on the file: an open shell, a copy tool"
        yield StorageFinding("long_reader", False, disk.long_reader(found), remedy)
    if path.exists():
        yield from _findings(lambda: disk.check_write_lock(path))


def _open(url: str, *, thorough: bool) -> list[StorageFinding]:
    if not looks_like_postgres(url) and not Path(url).exists():
        return [StorageFinding("absent", False, "there is no database yet", "the worker makes it at its first start")]
    return list(_findings(lambda: _read(url, thorough=thorough)))


def _read(url: str, *, thorough: bool) -> None:
    db.open_database(url)
    missing = db.pending_migrations()
    if missing:
        raise OldSchema(f"the schema lacks {', '.join(missing)}")
    if thorough:
        db.check_pages()


def _findings(question: Callable[[], None]) -> Iterator[StorageFinding]:
    try:
        question()
    except OldSchema as error:
        yield StorageFinding("old", False, str(error), "run csi db migrate, or start the worker")
    except StoreError as error:
        named = database_faults.identify(error)
        yield StorageFinding(named.kind, False, str(error), named.remedy)


def _log_disk_space(found: DiskSpace | None, wanted: int) -> None:
    free = None if found is None else found.free // MB
    if found is not None and found.free < wanted * MB:
        log.warning("the disk is nearly full; polling is paused until there is room", free_mb=free, wanted_mb=wanted)
    else:
        log.info("disk has room again; polling resumes", free_mb=free)
