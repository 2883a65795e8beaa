"""Subscriptions of agents are destinations that belong to a token and expire."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE managed_destinations ADD COLUMN owner TEXT")
    db.execute_sql("ALTER TABLE managed_destinations ADD COLUMN expires_at DOUBLE PRECISION")
