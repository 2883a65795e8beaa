"""Delivery to full depth: pausing by command, recovery that ramps up, and what retention needs."""

from typing import Any

STATEMENTS = [
    "ALTER TABLE endpoints ADD COLUMN paused_at DOUBLE PRECISION",
    "ALTER TABLE endpoints ADD COLUMN held TEXT",
    "ALTER TABLE endpoints ADD COLUMN held_at DOUBLE PRECISION",
    "ALTER TABLE endpoints ADD COLUMN ramp INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE batches ADD COLUMN sibling BIGINT",
    "ALTER TABLE batches ADD COLUMN rest BIGINT",
    "ALTER TABLE batches ADD COLUMN proof TEXT",
    # An item that came back from the dead letters closes its letter when it was handled.
    "ALTER TABLE inbox ADD COLUMN letter_id BIGINT",
    # Retention: a batch goes when its last event went, and both engines look its children up before they delete it.
    "CREATE INDEX idx_batch_events_batch ON batch_events (batch_id)",
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
