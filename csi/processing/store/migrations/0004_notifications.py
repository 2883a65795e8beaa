"""Alerts remember which news of a problem the operator was notified of."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    for column in ("revision", "notified_revision"):
        db.execute_sql(f"ALTER TABLE alerts ADD COLUMN {column} BIGINT NOT NULL DEFAULT 0")
