"""What an adapter remembers of a watch between two reads, as JSON."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE watches ADD COLUMN adapter_state TEXT")
