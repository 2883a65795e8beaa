"""Dead letters whose cause was called `endpoint` have the cause `destination`, which is the term of the glossary."""

from typing import Any

STATEMENTS = [
    "ALTER TABLE dead_letter ADD COLUMN new_cause TEXT NOT NULL DEFAULT 'event' "
    "CHECK (new_cause IN ('transient', 'destination', 'event', 'malformed', 'crash'))",
    "UPDATE dead_letter SET new_cause = CASE cause WHEN 'endpoint' THEN 'destination' ELSE cause END",
    "DROP INDEX idx_dead_open",
    "DROP INDEX idx_dead_died",
    "ALTER TABLE dead_letter DROP COLUMN cause",
    "ALTER TABLE dead_letter RENAME COLUMN new_cause TO cause",
    "CREATE INDEX idx_dead_open ON dead_letter (state, cause, id)",
    "CREATE INDEX idx_dead_died ON dead_letter (died_at, cause)",
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
