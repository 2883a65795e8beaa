"""The name that a watch's source gives it, and the interval that the operator set for this watch alone."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE watches ADD COLUMN title TEXT")
    db.execute_sql("ALTER TABLE watches ADD COLUMN own_interval DOUBLE PRECISION")
