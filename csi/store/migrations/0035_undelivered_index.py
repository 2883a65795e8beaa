"""The index of the PRD on `events.delivered` holds only events that are not delivered.

CSI never searches the others by it, and each delivery moved an entry from one end of the index to the other.
"""

from typing import Any

NAME = "idx_events_delivered"


def up(migrator: Any, db: Any) -> None:
    db.execute_sql(f"DROP INDEX IF EXISTS {NAME}")
    db.execute_sql(f"CREATE INDEX {NAME} ON events (delivered) WHERE delivered = FALSE")
