"""A batch that probes a receiver with a dead letter refers to it; items are found by the prefix of their key."""

from typing import Any

LETTER = "ALTER TABLE batches ADD COLUMN letter_id BIGINT"
PREFIXES = {"events": "dedupe_key", "dedupe_keys": "key", "inbox": "item_key"}


def up(migrator: Any, db: Any) -> None:
    db.execute_sql(LETTER)
    if type(db).__name__.startswith("Sqlite"):
        return  # its own indexes sort byte by byte; PostgreSQL's as its collation says
    for table, column in PREFIXES.items():
        db.execute_sql(f"CREATE INDEX idx_{table}_prefix ON {table} ({column} text_pattern_ops)")
