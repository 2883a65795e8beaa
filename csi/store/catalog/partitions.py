"""Monthly partitions on PostgreSQL, created before the first row of a month is inserted."""

from datetime import UTC, datetime

from csi.store.db import fetch, is_postgres, run, writing
from csi.store.models import database

BY_TIME = {"channel_stats": "captured_on", "video_stats": "captured_at", "job_events": "occurred_at"}
_LOCK = 7234507

# (database, table, month) of partitions that this process knows to exist.
_existing: set[tuple[str, str, str]] = set()


def month_of(moment: float) -> str:
    """`2026-02`, by UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m")


def month_starts(month: str) -> float:
    year, number = map(int, month.split("-"))
    return datetime(year, number, 1, tzinfo=UTC).timestamp()


def month_after(month: str) -> str:
    return month_of(month_starts(month) + 32 * 86_400)


def ensure_partition(table: str, moment: float) -> None:
    """Create the partition for this time if it is missing. It is remembered only outside of a transaction: the caller's
    transaction may be rolled back, and the partition with it."""
    if not is_postgres():
        return
    month = month_of(moment)
    known = (str(database.database), table, month)
    if known in _existing:
        return
    commits_here = not database.in_transaction()
    with writing():
        name = _name(table, month)
        if not fetch("SELECT 1 FROM pg_class WHERE relname = ?", name):
            run("SELECT pg_advisory_xact_lock(?)", _LOCK)  # two workers may do this at the turn of a month
            low, high = _first_value(table, month), _first_value(table, month_after(month))
            run(f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} FOR VALUES FROM ({low}) TO ({high})")
    if commits_here:
        _existing.add(known)


def drop_empty(table: str, before: float) -> None:
    """Drop empty partitions of months that ended before this time."""
    if not is_postgres():
        return
    partitions = fetch(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = ?::regclass ORDER BY c.relname",
        table,
    )
    month = month_of(before)
    for (name,) in partitions:
        with writing():
            if name.removeprefix(f"{table}_").replace("_", "-") < month and not fetch(f"SELECT 1 FROM {name} LIMIT 1"):
                run(f"DROP TABLE {name}")
                _existing.difference_update({known for known in _existing if _name(known[1], known[2]) == name})


def _first_value(table: str, month: str) -> str:
    """The lower bound of a month's partition, as SQL."""
    return f"'{month}-01'" if BY_TIME[table] == "captured_on" else str(int(month_starts(month)))


def _name(table: str, month: str) -> str:
    return f"{table}_{month.replace('-', '_')}"
