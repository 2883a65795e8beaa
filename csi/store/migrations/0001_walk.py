"""The rows of the walk: watch → inbox → event → batch → attempt → delivered or dead letter.

Plain SQL, so that the PRD's tables (§5.3) can be read here as they were written. `created_at` has no default:
the PRD's `datetime('utc')` is NULL on SQLite, so the program writes it.
"""

from typing import Any

TABLES = [
    """
    CREATE TABLE watches (
        id {pk},
        source TEXT NOT NULL,
        ref TEXT NOT NULL,
        name TEXT,
        route_profile TEXT,
        tags_json TEXT NOT NULL DEFAULT '[]',
        tier TEXT NOT NULL,
        interval_seconds DOUBLE PRECISION NOT NULL,
        first_poll TEXT NOT NULL DEFAULT '"mark_seen"',
        origin TEXT NOT NULL DEFAULT 'config',
        state TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'removed')),
        next_poll_at DOUBLE PRECISION NOT NULL,
        wake_at DOUBLE PRECISION NOT NULL,
        lease_token TEXT,
        lease_until DOUBLE PRECISION,
        first_read_at DOUBLE PRECISION,
        last_poll_at DOUBLE PRECISION,
        last_success_at DOUBLE PRECISION,
        last_new_at DOUBLE PRECISION,
        errors INTEGER NOT NULL DEFAULT 0,
        last_error TEXT,
        etag TEXT,
        last_modified TEXT,
        created_at TEXT NOT NULL,
        UNIQUE (source, ref)
    )
    """,
    "CREATE INDEX idx_watches_wake ON watches (wake_at) WHERE state = 'active'",
    """
    CREATE TABLE inbox (
        id {pk},
        watch_id BIGINT NOT NULL REFERENCES watches (id),
        item_key TEXT NOT NULL UNIQUE,
        event_type TEXT NOT NULL,
        occurred_at TEXT NOT NULL,
        payload_json TEXT NOT NULL,
        seen_at DOUBLE PRECISION NOT NULL,
        state TEXT NOT NULL DEFAULT 'new' CHECK (state IN ('new', 'quarantined')),
        claims INTEGER NOT NULL DEFAULT 0,
        wake_at DOUBLE PRECISION NOT NULL,
        lease_token TEXT,
        lease_until DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_inbox_wake ON inbox (wake_at) WHERE state = 'new'",
    "CREATE INDEX idx_inbox_watch ON inbox (watch_id, id) WHERE state = 'new'",
    """
    CREATE TABLE batches (
        id {pk},
        batch_id TEXT NOT NULL UNIQUE,
        destination TEXT NOT NULL,
        tier TEXT NOT NULL,
        size INTEGER NOT NULL,
        probe BOOLEAN NOT NULL DEFAULT FALSE,
        state TEXT NOT NULL DEFAULT 'ready'
            CHECK (state IN ('ready', 'sending', 'delivered', 'dead', 'split', 'released')),
        attempts INTEGER NOT NULL DEFAULT 0,
        crashes INTEGER NOT NULL DEFAULT 0,
        next_attempt_at DOUBLE PRECISION NOT NULL,
        wake_at DOUBLE PRECISION NOT NULL,
        lease_token TEXT,
        lease_until DOUBLE PRECISION,
        created_at DOUBLE PRECISION NOT NULL,
        settled_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_batches_wake ON batches (wake_at) WHERE state IN ('ready', 'sending')",
    """
    CREATE TABLE events (
        id {pk},
        event_id TEXT UNIQUE NOT NULL,
        dedupe_key TEXT NOT NULL,
        source TEXT NOT NULL,
        event_type TEXT NOT NULL,
        occurred_at TEXT NOT NULL,
        received_at TEXT NOT NULL,
        emitted_at TEXT,
        subject_json TEXT NOT NULL,
        routing_json TEXT NOT NULL,
        metadata_json TEXT NOT NULL,
        delivered BOOLEAN DEFAULT FALSE,
        created_at TEXT,
        raw_ref TEXT,
        contract_version TEXT NOT NULL,
        watch_id BIGINT REFERENCES watches (id),
        seq BIGINT NOT NULL,
        tier TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending'
            CHECK (state IN ('pending', 'in_flight', 'delivered', 'dead', 'quarantined')),
        first_seen_at DOUBLE PRECISION NOT NULL,
        delivered_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_events_dedupe ON events (dedupe_key)",
    "CREATE INDEX idx_events_source ON events (source)",
    "CREATE INDEX idx_events_delivered ON events (delivered)",
    "CREATE INDEX idx_events_waiting ON events (first_seen_at) WHERE state IN ('pending', 'in_flight')",
    """
    CREATE TABLE outbox (
        id {pk},
        event_pk BIGINT NOT NULL REFERENCES events (id),
        destination TEXT NOT NULL,
        tier TEXT NOT NULL,
        watch_id BIGINT,
        seq BIGINT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'in_flight')),
        due_at DOUBLE PRECISION NOT NULL,
        batch_id BIGINT REFERENCES batches (id),
        UNIQUE (event_pk, destination)
    )
    """,
    "CREATE INDEX idx_outbox_pending ON outbox (destination, tier, due_at, seq) WHERE state = 'pending'",
    "CREATE INDEX idx_outbox_in_flight ON outbox (watch_id, seq) WHERE state = 'in_flight'",
    "CREATE INDEX idx_outbox_batch ON outbox (batch_id) WHERE batch_id IS NOT NULL",
    """
    CREATE TABLE batch_events (
        batch_id BIGINT NOT NULL REFERENCES batches (id),
        event_pk BIGINT NOT NULL REFERENCES events (id),
        PRIMARY KEY (event_pk, batch_id)
    )
    """,
    """
    CREATE TABLE dedupe_keys (
        key TEXT PRIMARY KEY,
        expires_at TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT 'emitted',
        first_seen_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_dedupe_expires ON dedupe_keys (expires_at)",
    """
    CREATE TABLE delivery_attempts (
        id {pk},
        batch_id BIGINT REFERENCES batches (id),
        destination TEXT NOT NULL,
        request_id TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        form TEXT NOT NULL,
        started_at DOUBLE PRECISION NOT NULL,
        finished_at DOUBLE PRECISION,
        outcome TEXT NOT NULL,
        status INTEGER,
        reason TEXT,
        answer TEXT
    )
    """,
    "CREATE INDEX idx_attempts_batch ON delivery_attempts (batch_id)",
    "CREATE INDEX idx_attempts_time ON delivery_attempts (destination, started_at)",
    """
    CREATE TABLE dead_letter (
        id {pk},
        event_id TEXT NOT NULL,
        event_json TEXT NOT NULL,
        error_reason TEXT,
        retry_count INTEGER DEFAULT 0,
        created_at TEXT,
        source TEXT NOT NULL,
        destination TEXT NOT NULL DEFAULT 'default',
        cause TEXT NOT NULL CHECK (cause IN ('transient', 'endpoint', 'event', 'malformed', 'crash')),
        status INTEGER,
        state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replaying', 'replayed', 'discarded')),
        rounds INTEGER NOT NULL DEFAULT 0,
        first_seen_at DOUBLE PRECISION,
        died_at DOUBLE PRECISION NOT NULL,
        closed_at DOUBLE PRECISION,
        result TEXT
    )
    """,
    "CREATE INDEX idx_dead_open ON dead_letter (state, cause, id)",
    "CREATE INDEX idx_dead_event ON dead_letter (event_id)",
    """
    CREATE TABLE endpoints (
        destination TEXT PRIMARY KEY,
        breaker TEXT NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open')),
        reason TEXT,
        opened_at DOUBLE PRECISION,
        canary BIGINT,
        probes INTEGER NOT NULL DEFAULT 0,
        next_probe_at DOUBLE PRECISION,
        paused_until DOUBLE PRECISION,
        last_success_at DOUBLE PRECISION,
        last_failure_at DOUBLE PRECISION,
        last_error TEXT,
        form TEXT
    )
    """,
    """
    CREATE TABLE counters (
        name TEXT NOT NULL,
        source TEXT NOT NULL DEFAULT '',
        label TEXT NOT NULL DEFAULT '',
        value DOUBLE PRECISION NOT NULL DEFAULT 0,
        PRIMARY KEY (name, source, label)
    )
    """,
    """
    CREATE TABLE api_budget (
        id TEXT PRIMARY KEY,
        quota_used BIGINT NOT NULL DEFAULT 0,
        quota_limit BIGINT NOT NULL,
        period_start TEXT NOT NULL,
        period_end TEXT NOT NULL,
        last_updated_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE heartbeats (
        name TEXT PRIMARY KEY,
        beat_at DOUBLE PRECISION NOT NULL,
        started_at DOUBLE PRECISION NOT NULL,
        pid INTEGER NOT NULL
    )
    """,
]

PRIMARY_KEY = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
}


def up(migrator: Any, db: Any) -> None:
    kind = "sqlite" if type(db).__name__.startswith("Sqlite") else "postgresql"
    for statement in TABLES:
        db.execute_sql(statement.replace("{pk}", PRIMARY_KEY[kind]))
