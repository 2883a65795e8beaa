"""Delivery to full depth: pausing by command, recovery that ramps up, and what retention needs."""

from typing import Any

STATEMENTS = [
    "ALTER TABLE endpoints ADD COLUMN held TEXT",
    "ALTER TABLE endpoints ADD COLUMN held_at DOUBLE PRECISION",
    "ALTER TABLE endpoints ADD COLUMN ramp INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE batches ADD COLUMN sibling BIGINT",
    "ALTER TABLE batches ADD COLUMN rest BIGINT",
    "ALTER TABLE batches ADD COLUMN proof TEXT",
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
