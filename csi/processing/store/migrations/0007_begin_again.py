"""A skipped video may be discovered again: its row is deleted and written anew while its jobs and steps stay.

SQLite defers foreign keys by a pragma; PostgreSQL needs constraints that may be deferred.
"""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    if type(db).__name__.startswith("Sqlite"):
        return
    for table in ("jobs", "steps"):
        db.execute_sql(f"ALTER TABLE {table} ALTER CONSTRAINT {table}_video_id_fkey DEFERRABLE INITIALLY IMMEDIATE")
