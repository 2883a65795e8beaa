"""The bucket of a day's API units, and when the details of a video were last read."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE api_budget ADD COLUMN bucket TEXT NOT NULL DEFAULT 'main'")
    db.execute_sql("ALTER TABLE videos ADD COLUMN details_at DOUBLE PRECISION")
    db.execute_sql("UPDATE videos SET details_at = last_refreshed_at")
