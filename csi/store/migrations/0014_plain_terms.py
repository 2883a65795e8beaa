"""Tables and columns of destinations, alerts and leadership get the terms of the glossary. No value changes."""

from typing import Any

STATEMENTS = [
    "ALTER TABLE endpoints RENAME TO destinations",
    "ALTER TABLE destinations RENAME COLUMN breaker TO circuit",
    "ALTER TABLE destinations RENAME COLUMN form TO json_form",
    # In this order: `paused_at` was the time of a Retry-After and is now the time of the operator's pause.
    "ALTER TABLE destinations RENAME COLUMN paused_until TO throttled_until",
    "ALTER TABLE destinations RENAME COLUMN paused_at TO throttled_at",
    "ALTER TABLE destinations RENAME COLUMN held TO paused_reason",
    "ALTER TABLE destinations RENAME COLUMN held_at TO paused_at",
    "ALTER TABLE troubles RENAME TO alerts",
    "ALTER TABLE alerts RENAME COLUMN told_at TO notified_at",
    "ALTER TABLE alerts RENAME COLUMN ended_at TO resolved_at",
    "ALTER TABLE alerts RENAME COLUMN end_told_at TO resolved_notified_at",
    "ALTER TABLE alerts RENAME COLUMN next_try_at TO next_notify_at",
    "DROP INDEX idx_troubles_open",
    "CREATE UNIQUE INDEX idx_alerts_firing ON alerts (name, subject) WHERE resolved_at IS NULL",
    "ALTER TABLE duties RENAME TO leadership",
    "ALTER TABLE leadership RENAME COLUMN name TO role",
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
