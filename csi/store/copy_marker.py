"""Whether this database is a copy of another: `begun`, then `complete`; the row is deleted when a worker uses it."""

from csi.errors import StoreError
from csi.store.db import fetch, run, writing


def begin(source: str, now: float, *, is_empty: bool) -> None:
    """Mark a copy as begun. StoreError unless the database is empty or holds a copy from the same source."""
    begun = [row[0] for row in fetch("SELECT source FROM copies")]
    if begun and begun != [source]:
        raise StoreError(f"the target holds a copy of {begun[0]}; choose an empty database")
    if not begun and not is_empty:
        raise StoreError("the target holds rows that were not written by a copy; choose an empty database")
    # Committed before the first row is copied: after a crash the row stays `begun`, and no worker starts here.
    with writing():
        run("INSERT INTO copies (source, begun_at) VALUES (?, ?) ON CONFLICT (source) DO NOTHING", source, now)
        run("UPDATE copies SET state = 'begun', finished_at = NULL WHERE source = ?", source)


def finish(source: str, now: float) -> None:
    run("UPDATE copies SET state = 'complete', finished_at = ? WHERE source = ?", now, source)


def take_into_use() -> None:
    """Called when a worker starts: later copies must not overwrite this database. StoreError when the copy is
    incomplete, because rows may be missing."""
    begun = fetch("SELECT source FROM copies WHERE state = 'begun'")
    if begun:
        raise StoreError(
            f"the copy into this database is not finished: stop the worker of {begun[0][0]} and run csi db copy again"
        )
    run("DELETE FROM copies")
