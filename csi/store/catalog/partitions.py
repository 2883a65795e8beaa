"""Monthly partitions on PostgreSQL, created before the first row of a month is inserted."""

from datetime import UTC, datetime

from csi.store.db import fetch, is_postgres, number, run, writing
from csi.store.models import database

BY_TIME = {"channel_stats": "captured_on", "video_stats": "captured_at", "job_events": "occurred_at"}
# Refreshes and pages name the channel or the video. The key of job_events lacks the job: its months stay whole.
DIVIDED_BY = {"channel_stats": "channel_id", "video_stats": "video_id"}
SUB_PARTITIONS = 16
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
        if not _exists(_name(table, month)):
            run("SELECT pg_advisory_xact_lock(?)", _LOCK)  # two workers may do this at the turn of a month
            run(_creation(table, month))
    if commits_here:
        _existing.add(known)


def divide_next_month(now: float, rows: int) -> list[str]:
    """Create the next month of every table of statistics with more than this many rows, by PostgreSQL's estimate, in
    sub-partitions by the hash of channel or video. Returns the months created. One that exists stays as it is.

    It is done ahead and in transactions of its own (decision 0046): the first one rebuilds the table's primary key,
    which has to include the channel or video.
    """
    if not is_postgres():
        return []
    created, month = [], month_after(month_of(now))
    for table, key in DIVIDED_BY.items():
        name = _name(table, month)
        if _exists(name) or _estimated_rows(table) <= rows:
            continue
        with writing():
            run("SELECT pg_advisory_xact_lock(?)", _LOCK)
            if _exists(name):
                continue
            if key not in database.get_primary_keys(table):
                columns = f"id, {key}, {BY_TIME[table]}"
                run(f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey, ADD PRIMARY KEY ({columns})")
            run(f"{_creation(table, month)} PARTITION BY HASH ({key})")
            for remainder in range(SUB_PARTITIONS):
                values = f"WITH (MODULUS {SUB_PARTITIONS}, REMAINDER {remainder})"
                run(f"CREATE TABLE {name}_{remainder} PARTITION OF {name} FOR VALUES {values}")
            created.append(name)
    return created


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


def _exists(name: str) -> bool:
    return bool(fetch("SELECT 1 FROM pg_class WHERE relname = ?", name))


def _estimated_rows(table: str) -> int:
    """As of PostgreSQL's last ANALYZE of each partition; one that was never analyzed has -1."""
    sql = """SELECT SUM(GREATEST(c.reltuples, 0)) FROM pg_partition_tree(?::regclass) p
        JOIN pg_class c ON c.oid = p.relid WHERE p.isleaf"""
    return number(sql, table)


def _creation(table: str, month: str) -> str:
    low, high = _first_value(table, month), _first_value(table, month_after(month))
    return f"CREATE TABLE IF NOT EXISTS {_name(table, month)} PARTITION OF {table} FOR VALUES FROM ({low}) TO ({high})"


def _first_value(table: str, month: str) -> str:
    """The lower bound of a month's partition, as SQL."""
    return f"'{month}-01'" if BY_TIME[table] == "captured_on" else str(int(month_starts(month)))


def _name(table: str, month: str) -> str:
    return f"{table}_{month.replace('-', '_')}"
