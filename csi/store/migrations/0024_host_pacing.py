"""Slots and learned spacing of hosts; the slot that a waiting watch has reserved."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql(
        """CREATE TABLE host_pacing (
            name TEXT NOT NULL PRIMARY KEY, next_at DOUBLE PRECISION NOT NULL, spacing DOUBLE PRECISION,
            throttled_at DOUBLE PRECISION, last_status INTEGER, last_at DOUBLE PRECISION)"""
    )
    db.execute_sql("ALTER TABLE watches ADD COLUMN slot_at DOUBLE PRECISION")
