"""The audit log says how each action ended, in words."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE audit ADD COLUMN outcome TEXT")
    db.execute_sql("ALTER TABLE audit ADD COLUMN result TEXT")
