"""Whether anybody wrote to the database since this thread looked last."""

from csi.store.db import fetch, is_postgres


def version() -> int | None:
    """Another number after every commit through another connection, the writer's of this process among them. None:
    PostgreSQL has no such number."""
    return None if is_postgres() else int(fetch("PRAGMA data_version")[0][0])
