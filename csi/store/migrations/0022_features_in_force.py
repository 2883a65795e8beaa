"""The switches of `features` that the worker uses, for the sidecar, which reads its configuration at its start."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE reloads ADD COLUMN features_json TEXT")
