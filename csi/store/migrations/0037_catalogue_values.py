"""Attempts of jobs that are never taken back, the time behind an hourly gain, the server's own ETag, and enumerations
that the database checks."""

from typing import Any

ENUMERATIONS = {
    "definition": ("hd", "sd"),
    "privacy_status": ("public", "unlisted", "private"),
    "upload_status": ("uploaded", "processed", "failed", "rejected", "deleted"),
}


def _sent(column: str) -> str:
    """What the server sent: a watch stores it behind a mark and the time of the read; the mark `body` is our own."""
    server = f"SUBSTR(w.{column}, 1, 5) = 'feed:' OR SUBSTR(w.{column}, 1, 4) = 'api:'"
    found = f"w.{column}"
    for _ in range(2):
        found = f"SUBSTR({found}, {{position}}({found}, ':') + 1)"
    return f"CASE WHEN {server} THEN NULLIF({found}, '') END"


VIEW = """
    CREATE VIEW channel_feeds AS
    SELECT c.id AS channel_id, w.feed_url AS feed_url, {etag} AS last_etag, {modified} AS last_modified,
        w.last_success_at AS last_polled_at, w.last_video_published_at AS last_video_published_at,
        w.interval_seconds / 60 AS poll_interval_minutes, w.errors AS consecutive_errors,
        CASE WHEN w.state = 'paused' THEN 'paused' WHEN w.health = 'healthy' THEN 'active' ELSE 'error' END AS status,
        w.id AS watch_id
    FROM channels c JOIN watches w ON w.source = 'youtube_channel_rss' AND w.ref = c.id AND w.state <> 'removed'
"""


def up(migrator: Any, db: Any) -> None:
    db.execute_sql("ALTER TABLE jobs ADD COLUMN fruitless_attempts INTEGER NOT NULL DEFAULT 0")
    db.execute_sql("UPDATE jobs SET fruitless_attempts = attempts")
    db.execute_sql("ALTER TABLE video_stats ADD COLUMN hourly_views_hours DOUBLE PRECISION")
    for name, values in ENUMERATIONS.items():
        # A column of SQLite gets a CHECK only when it is added.
        allowed = ", ".join(f"'{value}'" for value in values)
        db.execute_sql(f"ALTER TABLE videos ADD COLUMN checked_{name} TEXT CHECK (checked_{name} IN ({allowed}))")
        db.execute_sql(f"UPDATE videos SET checked_{name} = {name} WHERE {name} IN ({allowed})")
        db.execute_sql(f"ALTER TABLE videos DROP COLUMN {name}")
        db.execute_sql(f"ALTER TABLE videos RENAME COLUMN checked_{name} TO {name}")
    position = "INSTR" if type(db).__name__.startswith("Sqlite") else "STRPOS"
    db.execute_sql("DROP VIEW channel_feeds")
    etag, modified = (_sent(column).format(position=position) for column in ("etag", "last_modified"))
    db.execute_sql(VIEW.format(etag=etag, modified=modified))
