"""Destinations that operators add by command. Their secrets are in a file of the state directory, not here."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    db.execute_sql(
        """CREATE TABLE managed_destinations (
            name TEXT NOT NULL PRIMARY KEY, settings_json TEXT NOT NULL, version TEXT NOT NULL,
            added_at DOUBLE PRECISION NOT NULL, previous_until DOUBLE PRECISION, previous_needed_at DOUBLE PRECISION)"""
    )
