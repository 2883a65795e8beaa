"""An item is found by the beginning of its key. SQLite's indexes do that; PostgreSQL's depend on the collation."""

from typing import Any

PREFIXES = {"events": "dedupe_key", "dedupe_keys": "key", "inbox": "item_key"}


def up(migrator: Any, db: Any) -> None:
    if type(db).__name__.startswith("Sqlite"):
        return
    for table, column in PREFIXES.items():
        db.execute_sql(f"CREATE INDEX idx_{table}_prefix ON {table} ({column} text_pattern_ops)")
