"""Detect that the database was written to since this thread last asked."""

from csi.store.db import fetch, is_postgres


def version() -> int | None:
    """A number that changes with every commit through another connection, including this process's writer
    connection. None on PostgreSQL, which has no such number."""
    return None if is_postgres() else int(fetch("PRAGMA data_version")[0][0])
