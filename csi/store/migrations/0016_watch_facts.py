"""What a watch usually publishes, since when it is gone, empty or stale; refused API credentials; sources in force;
actions by command in the audit log."""

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

# SQLite cannot change a CHECK: the table is made anew with its rows and their ids.
AUDIT = {
    "sqlite": [
        """CREATE TABLE audit_new (
            id INTEGER PRIMARY KEY AUTOINCREMENT, at DOUBLE PRECISION NOT NULL,
            via TEXT NOT NULL CHECK (via IN ('api', 'dashboard', 'cli')),
            role TEXT NOT NULL CHECK (role IN ('admin', 'reader')),
            client TEXT, action TEXT NOT NULL, detail TEXT, status INTEGER, finished_at DOUBLE PRECISION)""",
        "INSERT INTO audit_new SELECT id, at, via, role, client, action, detail, status, finished_at FROM audit",
        "DROP TABLE audit",
        "ALTER TABLE audit_new RENAME TO audit",
    ],
    "postgresql": [
        "ALTER TABLE audit DROP CONSTRAINT audit_via_check",
        "ALTER TABLE audit ADD CONSTRAINT audit_via_check CHECK (via IN ('api', 'dashboard', 'cli'))",
    ],
}


def up(migrator: Any, db: Any) -> None:
    kind = "sqlite" if type(db).__name__.startswith("Sqlite") else "postgresql"
    for statement in [*STATEMENTS, *AUDIT[kind]]:
        db.execute_sql(statement)
