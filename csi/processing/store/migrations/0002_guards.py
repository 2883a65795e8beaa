"""The cursor stores the event id of its signal, and triggers also guard against `INSERT OR REPLACE`.

SQLite deletes the row that REPLACE replaces without running the triggers of DELETE. PostgreSQL has no such statement.
"""

from typing import Any

SQLITE_TRIGGERS = [
    """
    CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit_logs
    WHEN EXISTS (SELECT 1 FROM audit_logs WHERE log_id = NEW.log_id OR seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
    """,
    """
    CREATE TRIGGER videos_no_replace BEFORE INSERT ON videos
    WHEN EXISTS (SELECT 1 FROM videos WHERE video_id = NEW.video_id)
    BEGIN SELECT RAISE(IGNORE); END
    """,
]


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE intake ADD COLUMN event_id TEXT")
    if type(db).__name__.startswith("Sqlite"):
        for statement in SQLITE_TRIGGERS:
            db.execute_sql(statement)
