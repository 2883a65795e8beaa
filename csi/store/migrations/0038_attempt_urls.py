"""Each request remembers the address that it was sent to: that of its destination may change."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE delivery_attempts ADD COLUMN url TEXT")
