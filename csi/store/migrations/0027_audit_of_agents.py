"""The audit log records the calls of agents (`mcp`)."""

from typing import Any

# SQLite cannot change a CHECK: the table is made anew with its rows and their ids.
AUDIT = {
    "sqlite": [
        """CREATE TABLE audit_new (
            id INTEGER PRIMARY KEY AUTOINCREMENT, at DOUBLE PRECISION NOT NULL,
            via TEXT NOT NULL CHECK (via IN ('api', 'dashboard', 'cli', 'mcp')),
            role TEXT NOT NULL CHECK (role IN ('admin', 'reader')),
            client TEXT, action TEXT NOT NULL, detail TEXT, status INTEGER, finished_at DOUBLE PRECISION)""",
        "INSERT INTO audit_new SELECT id, at, via, role, client, action, detail, status, finished_at FROM audit",
        "DROP TABLE audit",
        "ALTER TABLE audit_new RENAME TO audit",
    ],
    "postgresql": [
        "ALTER TABLE audit DROP CONSTRAINT audit_via_check",
        "ALTER TABLE audit ADD CONSTRAINT audit_via_check CHECK (via IN ('api', 'dashboard', 'cli', 'mcp'))",
    ],
}


def up(migrator: Any, db: Any) -> None:
    for statement in AUDIT["sqlite" if type(db).__name__.startswith("Sqlite") else "postgresql"]:
        db.execute_sql(statement)
