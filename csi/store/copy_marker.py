"""Whether this database is the copy of another: `begun`, then `complete`, then in use, and the row is gone."""

from csi.errors import StoreError
from csi.store.db import fetch, run, writing


def begin(source: str, now: float, *, is_empty: bool) -> None:
    """Into an empty database, or one that was begun from the same place. StoreError for any other."""
    begun = [row[0] for row in fetch("SELECT source FROM copies")]
    if begun and begun != [source]:
        raise StoreError(f"the copy in the target was begun from {begun[0]}; name an empty database")
    if not begun and not is_empty:
        raise StoreError("the target holds rows that no copy put there; name an empty database")
    with writing():
        run("INSERT INTO copies (source, begun_at) VALUES (?, ?) ON CONFLICT (source) DO NOTHING", source, now)
        run("UPDATE copies SET state = 'begun', finished_at = NULL WHERE source = ?", source)


def finish(source: str, now: float) -> None:
    run("UPDATE copies SET state = 'complete', finished_at = ? WHERE source = ?", now, source)


def take_into_use() -> None:
    """A worker starts here: from now on this is no copy any more. StoreError while half of the rows may be missing."""
    begun = fetch("SELECT source FROM copies WHERE state = 'begun'")
    if begun:
        raise StoreError(
            f"the copy into this database is not finished: stop the worker of {begun[0][0]} and run csi db copy again"
        )
    run("DELETE FROM copies")
