"""Full-text search over titles, summaries and transcripts: FTS5 on SQLite, tsvector on PostgreSQL.

A text is stored in pieces: a tsvector holds at most a megabyte. The maintenance loop fills the table, also with the
texts of earlier versions.
"""

from typing import Any

SQLITE = "CREATE VIRTUAL TABLE texts USING fts5(video_id UNINDEXED, kind UNINDEXED, body, tokenize = 'unicode61')"
POSTGRES = [
    """CREATE TABLE texts (video_id TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
        words tsvector GENERATED ALWAYS AS (to_tsvector('simple', body)) STORED)""",
    "CREATE INDEX idx_texts_words ON texts USING gin (words)",
    "CREATE INDEX idx_texts_video ON texts (video_id)",
]


def up(migrator: Any, db: Any) -> None:
    for statement in [SQLITE] if type(db).__name__.startswith("Sqlite") else POSTGRES:
        db.execute_sql(statement)
    db.execute_sql("CREATE TABLE indexed_videos (video_id TEXT PRIMARY KEY, updated_at DOUBLE PRECISION NOT NULL)")
