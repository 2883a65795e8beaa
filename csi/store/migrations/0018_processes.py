"""Heartbeats say why a worker makes no progress, and at which address a sidecar listens."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE heartbeats ADD COLUMN stall_json TEXT")
    db.execute_sql("ALTER TABLE heartbeats ADD COLUMN address TEXT")
