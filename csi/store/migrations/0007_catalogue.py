"""The catalogue (specification 002): channels, videos, their statistics over time, the job ledger, the archive's book.

Names are the specification's. `channel_feeds` is a view of `watches`: a channel's feed and the ingester's watch of it
are one row. On PostgreSQL what grows with time is partitioned by month, so there its keys hold the time, too.
"""

from typing import Any

TABLES = [
    """
    CREATE TABLE channels (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL DEFAULT '',
        description TEXT,
        custom_url TEXT,
        subscriber_count BIGINT,
        video_count BIGINT,
        view_count BIGINT,
        thumbnail_url TEXT,
        uploads_playlist_id TEXT,
        country TEXT,
        created_at DOUBLE PRECISION,
        tracked_since DOUBLE PRECISION NOT NULL,
        last_refreshed_at DOUBLE PRECISION,
        status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'deleted', 'error')),
        priority INTEGER NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
        next_refresh_at DOUBLE PRECISION,
        missing_since DOUBLE PRECISION,
        backfilled_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_channels_due ON channels (next_refresh_at) WHERE next_refresh_at IS NOT NULL",
    "CREATE INDEX idx_channels_paused ON channels (id) WHERE status = 'paused'",
    """
    CREATE TABLE videos (
        id TEXT PRIMARY KEY,
        channel_id TEXT NOT NULL REFERENCES channels (id),
        title TEXT NOT NULL DEFAULT '',
        description TEXT,
        published_at DOUBLE PRECISION NOT NULL,
        duration BIGINT,
        view_count BIGINT,
        like_count BIGINT,
        comment_count BIGINT,
        thumbnail_url TEXT,
        category_id TEXT,
        tags TEXT NOT NULL DEFAULT '[]',
        language TEXT,
        caption_available BOOLEAN,
        definition TEXT,
        privacy_status TEXT,
        upload_status TEXT,
        first_seen_at DOUBLE PRECISION NOT NULL,
        last_refreshed_at DOUBLE PRECISION,
        missing_since DOUBLE PRECISION,
        refresh_tier TEXT NOT NULL DEFAULT 'tail' CHECK (refresh_tier IN ('hot', 'medium', 'tail')),
        next_refresh_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_videos_channel ON videos (channel_id, published_at)",
    "CREATE INDEX idx_videos_due ON videos (refresh_tier, next_refresh_at) WHERE next_refresh_at IS NOT NULL",
    "CREATE INDEX idx_videos_age ON videos (refresh_tier, published_at)",
    """
    CREATE TABLE channel_stats (
        id TEXT NOT NULL,
        channel_id TEXT NOT NULL REFERENCES channels (id),
        captured_at DOUBLE PRECISION NOT NULL,
        captured_on TEXT NOT NULL,
        subscriber_count BIGINT,
        video_count BIGINT,
        view_count BIGINT,
        daily_views BIGINT,
        daily_subscribers BIGINT,
        daily_videos BIGINT,
        PRIMARY KEY ({id captured_on}),
        UNIQUE (channel_id, captured_on)
    ) {by captured_on}
    """,
    "CREATE INDEX idx_channel_stats_trend ON channel_stats (channel_id, captured_at)",
    """
    CREATE TABLE video_stats (
        id TEXT NOT NULL,
        video_id TEXT NOT NULL REFERENCES videos (id),
        captured_at DOUBLE PRECISION NOT NULL,
        view_count BIGINT,
        like_count BIGINT,
        comment_count BIGINT,
        hourly_views BIGINT,
        daily_views BIGINT,
        PRIMARY KEY ({id captured_at}),
        UNIQUE (video_id, captured_at)
    ) {by captured_at}
    """,
    "CREATE INDEX idx_video_stats_time ON video_stats (captured_at)",
    """
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,
        type TEXT NOT NULL,
        channel_id TEXT REFERENCES channels (id),
        video_ids TEXT,
        priority INTEGER NOT NULL DEFAULT 5 CHECK (priority BETWEEN 1 AND 10),
        dedup_key TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'completed', 'failed', 'dead')),
        attempts INTEGER NOT NULL DEFAULT 0,
        max_attempts INTEGER NOT NULL DEFAULT 5,
        scheduled_at DOUBLE PRECISION NOT NULL,
        started_at DOUBLE PRECISION,
        completed_at DOUBLE PRECISION,
        error_message TEXT,
        payload TEXT,
        progress TEXT,
        units BIGINT NOT NULL DEFAULT 0,
        lease_token TEXT,
        lease_until DOUBLE PRECISION,
        created_at DOUBLE PRECISION NOT NULL,
        changed_at DOUBLE PRECISION NOT NULL,
        archived_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_jobs_queue ON jobs (status, scheduled_at, priority)",
    "CREATE INDEX idx_jobs_dedup ON jobs (dedup_key)",
    "CREATE INDEX idx_jobs_channel ON jobs (channel_id)",
    # The order in which jobs are taken, over those that wait and no others: finished ones cost nothing.
    "CREATE INDEX idx_jobs_ready ON jobs (priority DESC, scheduled_at) WHERE status = 'pending'",
    "CREATE INDEX idx_jobs_settled ON jobs (completed_at) WHERE completed_at IS NOT NULL AND archived_at IS NULL",
    "CREATE INDEX idx_jobs_archived ON jobs (completed_at) WHERE archived_at IS NOT NULL",
    # Two rules that no race can break: one open job for a key, one running job for a channel.
    "CREATE UNIQUE INDEX idx_jobs_open ON jobs (dedup_key) WHERE status IN ('pending', 'running', 'failed')",
    "CREATE UNIQUE INDEX idx_jobs_one_a_channel ON jobs (channel_id)"
    " WHERE status = 'running' AND channel_id IS NOT NULL",
    """
    CREATE TABLE job_events (
        id TEXT NOT NULL,
        job_id TEXT NOT NULL REFERENCES jobs (id),
        event_type TEXT NOT NULL
            CHECK (event_type IN ('started', 'completed', 'failed', 'retried', 'dead_lettered')),
        occurred_at DOUBLE PRECISION NOT NULL,
        details TEXT NOT NULL DEFAULT '{}',
        duration_ms BIGINT,
        PRIMARY KEY ({id occurred_at})
    ) {by occurred_at}
    """,
    "CREATE INDEX idx_job_events_job ON job_events (job_id, occurred_at)",
    "CREATE INDEX idx_job_events_time ON job_events (occurred_at)",
    """
    CREATE TABLE archives (
        name TEXT PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('video_stats', 'jobs')),
        month TEXT NOT NULL,
        rows BIGINT NOT NULL DEFAULT 0,
        bytes BIGINT NOT NULL DEFAULT 0,
        written_at DOUBLE PRECISION,
        kept_until DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_api_budget_start ON api_budget (period_start)",
    "ALTER TABLE watches ADD COLUMN feed_url TEXT",
    "ALTER TABLE watches ADD COLUMN last_video_published_at DOUBLE PRECISION",
    """
    CREATE VIEW channel_feeds AS
    SELECT c.id AS channel_id, w.feed_url AS feed_url, w.etag AS last_etag, w.last_modified AS last_modified,
        w.last_success_at AS last_polled_at, w.last_video_published_at AS last_video_published_at,
        w.interval_seconds / 60 AS poll_interval_minutes, w.errors AS consecutive_errors,
        CASE WHEN w.state = 'paused' THEN 'paused' WHEN w.health = 'healthy' THEN 'active' ELSE 'error' END AS status,
        w.id AS watch_id
    FROM channels c JOIN watches w ON w.source = 'youtube_channel_rss' AND w.ref = c.id AND w.state <> 'removed'
    """,
]

TIMES = ("captured_at", "captured_on", "occurred_at")


def up(migrator: Any, db: Any) -> None:
    partitioned = not type(db).__name__.startswith("Sqlite")
    for statement in TABLES:
        for time in TIMES:
            statement = statement.replace(f"{{id {time}}}", f"id, {time}" if partitioned else "id")
            statement = statement.replace(f"{{by {time}}}", f"PARTITION BY RANGE ({time})" if partitioned else "")
        db.execute_sql(statement)
