"""An index finds the first pending event of each watch without reading the backlog of the others."""

from typing import Any

STATEMENTS = [
    # 0: an event of no watch (rebuilt from a dead letter). NULL would not be found by the walk over watches.
    "UPDATE outbox SET watch_id = 0 WHERE watch_id IS NULL",
    "CREATE INDEX idx_outbox_watch ON outbox (destination, tier, watch_id, seq) WHERE state = 'pending'",
    "DROP INDEX idx_outbox_in_flight",
    # An event whose batches failed twice as a whole is sent alone: it must not fail other events with it.
    "ALTER TABLE outbox ADD COLUMN alone BOOLEAN NOT NULL DEFAULT FALSE",
]


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)
