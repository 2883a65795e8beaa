"""Several workers: the leader's lease, and whether a copy into this database is complete."""

from typing import Any

STATEMENTS = [
    """
    CREATE TABLE duties (
        name TEXT PRIMARY KEY,
        holder TEXT NOT NULL,
        lease_until DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE TABLE copies (
        source TEXT PRIMARY KEY,
        state TEXT NOT NULL DEFAULT 'begun' CHECK (state IN ('begun', 'complete')),
        begun_at DOUBLE PRECISION NOT NULL,
        finished_at DOUBLE PRECISION
    )
    """,
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
