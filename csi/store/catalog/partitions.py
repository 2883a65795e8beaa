"""Months on PostgreSQL: tables that grow with time are partitioned, and a month is there before its first row."""

from datetime import UTC, datetime

from csi.store.db import fetch, is_postgres, run, writing
from csi.store.models import database

BY_TIME = {"channel_stats": "captured_on", "video_stats": "captured_at", "job_events": "occurred_at"}
_LOCK = 7234507

# The months that this process knows to be there, with the database they are in.
_there: set[tuple[str, str, str]] = set()


def month_of(moment: float) -> str:
    """`2026-02`, by UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m")


def month_starts(month: str) -> float:
    year, number = map(int, month.split("-"))
    return datetime(year, number, 1, tzinfo=UTC).timestamp()


def month_after(month: str) -> str:
    return month_of(month_starts(month) + 32 * 86_400)


def ensure_partition(table: str, moment: float) -> None:
    """Afterwards a row of this time can be inserted. Inside a transaction it is looked up anew each time: what a
    transaction makes may be taken back."""
    if not is_postgres():
        return
    month = month_of(moment)
    place = (str(database.database), table, month)
    if place in _there:
        return
    is_ours = not database.in_transaction()
    with writing():
        if not _exists(_name(table, month)):
            run("SELECT pg_advisory_xact_lock(?)", _LOCK)  # two workers at the turn of a month
            _create(table, month)
    if is_ours:
        _there.add(place)


def drop_empty(table: str, before: float) -> list[str]:
    """Months that ended before this time and hold nothing any more. Returns the names of those dropped."""
    if not is_postgres():
        return []
    month, dropped = month_of(before), []
    for name in _all_of(table):
        with writing():
            if name.removeprefix(f"{table}_").replace("_", "-") < month and not fetch(f"SELECT 1 FROM {name} LIMIT 1"):
                run(f"DROP TABLE {name}")
                _there.difference_update({place for place in _there if _name(place[1], place[2]) == name})
                dropped.append(name)
    return dropped


def _all_of(table: str) -> list[str]:
    found = fetch(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = ?::regclass ORDER BY c.relname",
        table,
    )
    return [row[0] for row in found]


def _create(table: str, month: str) -> None:
    low, high = (_bound(table, each) for each in (month, month_after(month)))
    run(f"CREATE TABLE IF NOT EXISTS {_name(table, month)} PARTITION OF {table} FOR VALUES FROM ({low}) TO ({high})")


def _bound(table: str, month: str) -> str:
    return f"'{month}-01'" if BY_TIME[table] == "captured_on" else str(int(month_starts(month)))


def _name(table: str, month: str) -> str:
    return f"{table}_{month.replace('-', '_')}"


def _exists(name: str) -> bool:
    return bool(fetch("SELECT 1 FROM pg_class WHERE relname = ?", name))
