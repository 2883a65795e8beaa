"""The room on the disk and the length of the write-ahead log, checked by the worker (fault cases 44–52)."""

from pathlib import Path

from csi.logs import log
from csi.runtime import Runtime
from csi.store import disk
from csi.store.disk import MB

SHORTEN_ABOVE = 34 * MB
"""A log that was started anew keeps up to 32 MB of its file (journal_size_limit)."""


def has_room(rt: Runtime) -> bool:
    """False: less than `min_free_mb` is free. Polling stops then, so that stored events can still be delivered."""
    found = disk.measure()
    enough = found is None or found.free >= rt.settings.csi.min_free_mb * MB
    if enough != rt.process.has_room:
        rt.process.has_room = enough
        free = None if found is None else found.free // MB
        if found is not None and found.free < rt.settings.csi.min_free_mb * MB:
            log.warning(
                "the disk is nearly full; polling is paused until there is room",
                free_mb=free,
                wanted_mb=rt.settings.csi.min_free_mb,
            )
        else:
            log.info("disk has room again; polling resumes", free_mb=free)
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
