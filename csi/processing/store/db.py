"""Processing's database, and the small values that its tables share."""

import json
import secrets
from pathlib import Path
from typing import Any

from peewee import DatabaseProxy

from csi.sql import OWNER, DatabaseError, SqlDatabase, marks, new_token

__all__ = ["OWNER", "DatabaseError", "marks", "new_token"]

MIGRATIONS = Path(__file__).parent / "migrations"
database = DatabaseProxy()

sql_database = SqlDatabase(
    database,
    title="processing's database",
    migrations=MIGRATIONS,
    advisory_lock=7234506,
    pragmas={
        "journal_mode": "wal",
        "synchronous": "full",  # a row says that a call was paid for: a power cut must not undo it
        "foreign_keys": 1,
        "cache_size": -8000,
        "journal_size_limit": 32 * 1024 * 1024,
    },
    remedy="set state_dir in processing.yaml to a directory that this user may write",
)
_sql = sql_database
open_database = _sql.open
is_postgres = _sql.is_postgres
run, fetch, one, number, changed = _sql.run, _sql.fetch, _sql.one, _sql.number, _sql.changed
writing, connection, reading = _sql.writing, _sql.connection, _sql.reading
drop_broken_connection = _sql.drop_broken_connection
migrate, pending_migrations = _sql.migrate, _sql.pending_migrations


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(10)}"


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def doc_field(name: str) -> str:
    """SQL for a text of the column `doc`."""
    return f"(doc::jsonb ->> '{name}')" if is_postgres() else f"json_extract(doc, '$.{name}')"
