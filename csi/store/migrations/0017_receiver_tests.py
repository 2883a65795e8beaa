"""Destinations remember since when they fail, their tests and their certificate; samples of the backlog."""

from typing import Any

STATEMENTS = [
    "ALTER TABLE destinations ADD COLUMN failing_since DOUBLE PRECISION",
    "ALTER TABLE destinations ADD COLUMN answered_at DOUBLE PRECISION",
    "ALTER TABLE destinations ADD COLUMN test_requested_at DOUBLE PRECISION",
    "ALTER TABLE destinations ADD COLUMN tested_at DOUBLE PRECISION",
    "ALTER TABLE destinations ADD COLUMN certificate_expires_at DOUBLE PRECISION",
    "ALTER TABLE destinations ADD COLUMN confirms_counts BOOLEAN",
    "UPDATE destinations SET answered_at = last_success_at",
    "UPDATE destinations SET failing_since = opened_at WHERE circuit = 'open'",
    """CREATE TABLE backlog_samples (
        destination TEXT NOT NULL, taken_at DOUBLE PRECISION NOT NULL, waiting INTEGER NOT NULL,
        due INTEGER NOT NULL, delivered INTEGER NOT NULL, PRIMARY KEY (destination, taken_at))""",
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
