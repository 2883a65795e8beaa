"""The worker's heartbeat carries what it measured of its clocks, for the next worker and for other processes."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE heartbeats ADD COLUMN clock_json TEXT")
