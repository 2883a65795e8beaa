"""The tables of processing: signals, videos, jobs, paid calls, artifacts, audit log, dead jobs, runs and notices.

`doc` contains the whole document in the specification's shape. The columns beside it are for queries and the
pipeline; a constraint keeps the status in both equal.
"""

from typing import Any

from csi.processing.states import FIRST, STATUSES, legal_pairs, legal_transitions

_STATUSES = ", ".join(f"'{status}'" for status in STATUSES)
_PAIRS = ", ".join(f"'{status}/{stage}'" for status, stage in legal_pairs())
_MOVES = ", ".join(f"'{old}>{new}'" for old, new in legal_transitions())

TABLES = [
    """
    CREATE TABLE intake (
        name TEXT PRIMARY KEY,
        seq BIGINT NOT NULL
    )
    """,
    """
    CREATE TABLE signals (
        event_id TEXT PRIMARY KEY,
        seq BIGINT NOT NULL,
        pipeline TEXT NOT NULL,
        action TEXT NOT NULL CHECK (action IN ('process', 'notify', 'digest', 'ignore', 'unrouted', 'unusable')),
        video_id TEXT,
        title TEXT NOT NULL,
        reason TEXT,
        event_json TEXT NOT NULL,
        received_at DOUBLE PRECISION NOT NULL,
        taken_at DOUBLE PRECISION NOT NULL
    )
    """,
    "CREATE INDEX idx_signals_time ON signals (taken_at)",
    "CREATE INDEX idx_signals_video ON signals (video_id)",
    "CREATE INDEX idx_signals_unrouted ON signals (pipeline) WHERE action = 'unrouted'",
    f"""
    CREATE TABLE videos (
        video_id TEXT PRIMARY KEY,
        status TEXT NOT NULL CHECK (status IN ({_STATUSES})),
        stage TEXT NOT NULL,
        doc TEXT NOT NULL,
        pipeline TEXT NOT NULL,
        kind TEXT NOT NULL,
        url TEXT NOT NULL,
        correlation_id TEXT NOT NULL,
        discovered_at DOUBLE PRECISION NOT NULL,
        updated_at DOUBLE PRECISION NOT NULL,
        completed_at DOUBLE PRECISION,
        wake_at DOUBLE PRECISION NOT NULL,
        held TEXT,
        CHECK (status || '/' || stage IN ({_PAIRS})),
        CHECK (status = {{doc_status}} AND stage = {{doc_stage}})
    )
    """,
    "CREATE INDEX idx_videos_status ON videos (status, wake_at)",
    "CREATE INDEX idx_videos_updated ON videos (updated_at)",
    """
    CREATE TABLE steps (
        id {pk},
        video_id TEXT NOT NULL REFERENCES videos (video_id),
        old TEXT,
        new TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL
    )
    """,
    "CREATE INDEX idx_steps_time ON steps (at, new)",
    "CREATE INDEX idx_steps_video ON steps (video_id, id)",
    """
    CREATE TABLE jobs (
        job_id TEXT PRIMARY KEY,
        collection TEXT NOT NULL CHECK (collection IN ('jobs/transcription', 'jobs/summarization')),
        video_id TEXT NOT NULL REFERENCES videos (video_id),
        status TEXT NOT NULL CHECK (status IN
            ('queued', 'submitted', 'processing', 'completed', 'failed', 'retrying')),
        doc TEXT NOT NULL,
        work TEXT NOT NULL DEFAULT '{}',
        provider_job_id TEXT UNIQUE,
        attempts INTEGER NOT NULL DEFAULT 0,
        api_tries INTEGER NOT NULL DEFAULT 0,
        crashes INTEGER NOT NULL DEFAULT 0,
        next_attempt_at DOUBLE PRECISION NOT NULL,
        lease_token TEXT,
        lease_until DOUBLE PRECISION,
        created_at DOUBLE PRECISION NOT NULL,
        updated_at DOUBLE PRECISION NOT NULL,
        UNIQUE (collection, video_id),
        CHECK (status = {doc_status})
    )
    """,
    """
    CREATE INDEX idx_jobs_due ON jobs (next_attempt_at)
        WHERE status IN ('queued', 'submitted', 'processing', 'retrying')
    """,
    """
    CREATE TABLE calls (
        call_key TEXT PRIMARY KEY,
        job_id TEXT NOT NULL REFERENCES jobs (job_id),
        provider TEXT NOT NULL,
        day TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('started', 'paid', 'free', 'unknown')),
        estimated_units BIGINT NOT NULL,
        actual_units BIGINT,
        tokens BIGINT NOT NULL DEFAULT 0,
        answer TEXT,
        started_at DOUBLE PRECISION NOT NULL,
        finished_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_calls_day ON calls (day)",
    "CREATE INDEX idx_calls_job ON calls (job_id)",
    """
    CREATE TABLE artifacts (
        artifact_id TEXT PRIMARY KEY,
        video_id TEXT,
        kind TEXT NOT NULL,
        path TEXT NOT NULL UNIQUE,
        sha256 TEXT NOT NULL,
        bytes BIGINT NOT NULL,
        created_at DOUBLE PRECISION NOT NULL
    )
    """,
    "CREATE INDEX idx_artifacts_video ON artifacts (video_id)",
    """
    CREATE TABLE audit_logs (
        seq {pk},
        log_id TEXT NOT NULL UNIQUE,
        at DOUBLE PRECISION NOT NULL,
        event_type TEXT NOT NULL,
        agent TEXT NOT NULL,
        action TEXT NOT NULL,
        outcome TEXT NOT NULL,
        error_code TEXT,
        duration_ms DOUBLE PRECISION,
        resource_id TEXT,
        correlation_id TEXT,
        expires_at DOUBLE PRECISION NOT NULL,
        doc TEXT NOT NULL
    )
    """,
    "CREATE INDEX idx_audit_time ON audit_logs (at)",
    "CREATE INDEX idx_audit_resource ON audit_logs (resource_id)",
    "CREATE INDEX idx_audit_correlation ON audit_logs (correlation_id)",
    "CREATE INDEX idx_audit_expiry ON audit_logs (expires_at)",
    """
    CREATE TABLE dead_jobs (
        job_id TEXT PRIMARY KEY REFERENCES jobs (job_id),
        status TEXT NOT NULL CHECK (status IN ('pending', 'investigating', 'resolved', 'abandoned')),
        failure_type TEXT NOT NULL,
        can_retry BOOLEAN NOT NULL,
        retry_after DOUBLE PRECISION,
        rounds INTEGER NOT NULL DEFAULT 0,
        moved_at DOUBLE PRECISION NOT NULL,
        doc TEXT NOT NULL
    )
    """,
    "CREATE INDEX idx_dead_jobs ON dead_jobs (status, moved_at)",
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        status TEXT NOT NULL CHECK (status IN ('planned', 'running', 'completed', 'failed', 'paused')),
        doc TEXT NOT NULL,
        CHECK (status = {doc_status})
    )
    """,
    """
    CREATE TABLE run_marks (
        run_id TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('quota', 'policy', 'alert', 'digest')),
        name TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (run_id, kind, name)
    )
    """,
    """
    CREATE TABLE notices (
        id {pk},
        subject TEXT NOT NULL UNIQUE,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sending', 'sent', 'dead')),
        due_at DOUBLE PRECISION NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        lease_token TEXT,
        lease_until DOUBLE PRECISION,
        created_at DOUBLE PRECISION NOT NULL,
        sent_at DOUBLE PRECISION
    )
    """,
    "CREATE INDEX idx_notices_open ON notices (due_at) WHERE state IN ('waiting', 'sending')",
    """
    CREATE TABLE heartbeats (
        name TEXT PRIMARY KEY,
        beat_at DOUBLE PRECISION NOT NULL
    )
    """,
]

SQLITE = {
    "{pk}": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "{doc_status}": "json_extract(doc, '$.status')",
    "{doc_stage}": "json_extract(doc, '$.processing_stage')",
}
POSTGRES = {
    "{pk}": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "{doc_status}": "(doc::jsonb ->> 'status')",
    "{doc_stage}": "(doc::jsonb ->> 'processing_stage')",
}

SQLITE_TRIGGERS = [
    f"""
    CREATE TRIGGER videos_begin BEFORE INSERT ON videos WHEN NEW.status <> '{FIRST}'
    BEGIN SELECT RAISE(ABORT, 'a video begins as {FIRST}'); END
    """,
    f"""
    CREATE TRIGGER videos_move BEFORE UPDATE OF status ON videos
    WHEN OLD.status <> NEW.status AND OLD.status || '>' || NEW.status NOT IN ({_MOVES})
    BEGIN SELECT RAISE(ABORT, 'not a transition of the specification'); END
    """,
    """
    CREATE TRIGGER videos_first_step AFTER INSERT ON videos
    BEGIN INSERT INTO steps (video_id, old, new, at) VALUES (NEW.video_id, NULL, NEW.status, NEW.updated_at); END
    """,
    """
    CREATE TRIGGER videos_step AFTER UPDATE OF status ON videos WHEN OLD.status <> NEW.status
    BEGIN INSERT INTO steps (video_id, old, new, at)
          VALUES (NEW.video_id, OLD.status, NEW.status, NEW.updated_at); END
    """,
    """
    CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit_logs
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
    """,
    """
    CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit_logs
    WHEN OLD.expires_at > CAST(strftime('%s', 'now') AS REAL)
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only until an entry''s retention is over'); END
    """,
]

POSTGRES_TRIGGERS = [
    f"""
    CREATE FUNCTION videos_move() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            IF NEW.status <> '{FIRST}' THEN RAISE EXCEPTION 'a video begins as {FIRST}'; END IF;
            RETURN NEW;
        END IF;
        IF OLD.status <> NEW.status AND OLD.status || '>' || NEW.status NOT IN ({_MOVES}) THEN
            RAISE EXCEPTION 'not a transition of the specification';
        END IF;
        RETURN NEW;
    END $$
    """,
    "CREATE TRIGGER videos_move BEFORE INSERT OR UPDATE ON videos FOR EACH ROW EXECUTE FUNCTION videos_move()",
    """
    CREATE FUNCTION videos_step() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO steps (video_id, old, new, at) VALUES (NEW.video_id, NULL, NEW.status, NEW.updated_at);
        ELSIF OLD.status <> NEW.status THEN
            INSERT INTO steps (video_id, old, new, at) VALUES (NEW.video_id, OLD.status, NEW.status, NEW.updated_at);
        END IF;
        RETURN NULL;
    END $$
    """,
    "CREATE TRIGGER videos_step AFTER INSERT OR UPDATE ON videos FOR EACH ROW EXECUTE FUNCTION videos_step()",
    """
    CREATE FUNCTION audit_guard() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF OLD.expires_at <= extract(epoch FROM now()) THEN RETURN OLD; END IF;
        END IF;
        RAISE EXCEPTION 'the audit log is append-only until an entry''s retention is over';
    END $$
    """,
    """
    CREATE TRIGGER audit_guard BEFORE UPDATE OR DELETE ON audit_logs
    FOR EACH ROW EXECUTE FUNCTION audit_guard()
    """,
    "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit_logs EXECUTE FUNCTION audit_guard()",
]


def up(migrator: Any, db: Any) -> None:
    is_sqlite = type(db).__name__.startswith("Sqlite")
    for statement in TABLES:
        for mark, text in (SQLITE if is_sqlite else POSTGRES).items():
            statement = statement.replace(mark, text)
        db.execute_sql(statement)
    for statement in SQLITE_TRIGGERS if is_sqlite else POSTGRES_TRIGGERS:
        db.execute_sql(statement)
