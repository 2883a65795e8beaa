"""What is known of a watch beyond its times (health, cost, filters), and of the hosts that watches are read from."""

from typing import Any

COLUMNS = [
    "health TEXT NOT NULL DEFAULT 'healthy'"
    " CHECK (health IN ('healthy', 'backing_off', 'throttled', 'outage', 'suspect', 'dead'))",
    "health_since DOUBLE PRECISION",
    "error_kind TEXT",
    "note TEXT",
    "filters_json TEXT NOT NULL DEFAULT '{}'",
    "via TEXT NOT NULL DEFAULT 'feed' CHECK (via IN ('feed', 'api', 'both'))",
    "pages INTEGER NOT NULL DEFAULT 1",
    "planned_interval DOUBLE PRECISION",
    "fresh_until DOUBLE PRECISION",
    "probe_json TEXT",
    "walked_at DOUBLE PRECISION",
    "missing_since DOUBLE PRECISION",
    "host TEXT",
    "gap_json TEXT",
]

HOSTS = """
    CREATE TABLE hosts (
        host TEXT PRIMARY KEY,
        paused_until DOUBLE PRECISION,
        pause_reason TEXT,
        pauses INTEGER NOT NULL DEFAULT 0,
        outage_since DOUBLE PRECISION,
        outage_reason TEXT,
        outage_watches INTEGER NOT NULL DEFAULT 0,
        recovering_at DOUBLE PRECISION,
        last_ok_at DOUBLE PRECISION,
        last_error_at DOUBLE PRECISION
    )
"""

HOST_INDEX = "CREATE INDEX idx_watches_host ON watches (host, health)"


def up(migrator: Any, db: Any) -> None:
    for column in COLUMNS:
        db.execute_sql(f"ALTER TABLE watches ADD COLUMN {column}")
    db.execute_sql(HOSTS)
    db.execute_sql(HOST_INDEX)
