"""The last reads of each watch, and the options that an operator gave it."""

from typing import Any


def up(migrator: Any, db: Any) -> None:
    # SQLite stores a table without rowid in the order of its key: one write for each read of a watch.
    clustered = " WITHOUT ROWID" if type(db).__name__.startswith("Sqlite") else ""
    db.execute_sql(
        f"""CREATE TABLE poll_history (
            watch_id INTEGER NOT NULL, slot INTEGER NOT NULL, at DOUBLE PRECISION NOT NULL,
            seconds DOUBLE PRECISION NOT NULL, result TEXT NOT NULL, new_items INTEGER NOT NULL, error TEXT,
            PRIMARY KEY (watch_id, slot)){clustered}"""
    )
    db.execute_sql("ALTER TABLE watches ADD COLUMN reads INTEGER NOT NULL DEFAULT 0")
    db.execute_sql("ALTER TABLE watches ADD COLUMN options_json TEXT")
