"""When a dead job of the catalogue is tried again. Those of earlier versions get one try: their cause is not known."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE jobs ADD COLUMN redrive_at DOUBLE PRECISION")
    db.execute_sql("UPDATE jobs SET redrive_at = 0 WHERE status = 'dead' AND error_message <> 'cancelled'")
    db.execute_sql("CREATE INDEX idx_jobs_redrive ON jobs (redrive_at) WHERE redrive_at IS NOT NULL")
