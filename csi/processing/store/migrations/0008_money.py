"""Paid calls in micro-dollars, and dead jobs that are being retried: a retry is resolved when it has succeeded."""

from typing import Any

STATEMENTS = [
    "ALTER TABLE calls RENAME COLUMN estimated_units TO estimated_micro_usd",
    "ALTER TABLE calls RENAME COLUMN actual_units TO actual_micro_usd",
    "UPDATE calls SET estimated_micro_usd = estimated_micro_usd * 100, actual_micro_usd = actual_micro_usd * 100",
    "ALTER TABLE dead_jobs ADD COLUMN retried_at DOUBLE PRECISION",
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
