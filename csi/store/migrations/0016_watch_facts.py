"""What a watch usually publishes, since when it is gone, empty or stale; refused API credentials; sources in force."""

from typing import Any

STATEMENTS = [
    "ALTER TABLE watches ADD COLUMN usual_gap DOUBLE PRECISION",
    "ALTER TABLE watches ADD COLUMN empty_reads INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE watches ADD COLUMN gone_at DOUBLE PRECISION",
    "ALTER TABLE watches ADD COLUMN stale_since DOUBLE PRECISION",
    "ALTER TABLE watches ADD COLUMN compared_at DOUBLE PRECISION",
    "UPDATE watches SET gone_at = health_since WHERE health IN ('suspect', 'dead')",
    "ALTER TABLE reloads ADD COLUMN sources_json TEXT",
    "CREATE TABLE api_refusals (name TEXT PRIMARY KEY, error TEXT NOT NULL, since DOUBLE PRECISION NOT NULL)",
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
