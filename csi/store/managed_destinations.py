"""Destinations that were added by command: their settings, without secrets, and the overlap of a rotation."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import changed, chunks, column, columns, fetch_all, fetch_one, marks, new_token, number, run


@dataclass(frozen=True)
class ManagedDestination:
    """One row. `version` changes with every change: by it, running processes notice."""

    name: str
    settings_json: str
    version: str
    added_at: float
    previous_until: float | None = None
    """Until when the previous secret is used, too."""
    previous_needed_at: float | None = None
    """When the receiver last refused the new secret and accepted the previous one."""


_SELECT = f"SELECT {columns(ManagedDestination)} FROM managed_destinations"


def every() -> list[ManagedDestination]:
    return fetch_all(ManagedDestination, f"{_SELECT} ORDER BY added_at, name")


def find(name: str) -> ManagedDestination | None:
    return fetch_one(ManagedDestination, f"{_SELECT} WHERE name = ?", name)


def versions() -> tuple[str, ...]:
    """Of all rows. Equal versions: nothing changed."""
    return tuple(column("SELECT version FROM managed_destinations ORDER BY name"))


def write(name: str, settings_json: str, now: float, *, previous_until: float | None = None) -> None:
    """Insert or replace the settings. Another `previous_until` is another overlap: it begins, or is over."""
    sql = (
        "INSERT INTO managed_destinations (name, settings_json, version, added_at, previous_until) "
        "VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET settings_json = excluded.settings_json, "
        "version = excluded.version, previous_until = excluded.previous_until, previous_needed_at = CASE "
        "WHEN managed_destinations.previous_until = excluded.previous_until "
        "THEN managed_destinations.previous_needed_at END"
    )
    run(sql, name, settings_json, new_token(), now, previous_until)


def note_previous_needed(name: str, now: float) -> None:
    run("UPDATE managed_destinations SET previous_needed_at = ? WHERE name = ?", now, name)


def queued(name: str) -> int:
    return number("SELECT COUNT(*) FROM outbox WHERE destination = ?", name)


def in_flight(name: str) -> int:
    sql = "SELECT COUNT(*) FROM batches WHERE state = 'sending' AND destination = ?"
    return number(sql, name)


def remove(name: str, now: float) -> int:
    """Delete the row, and what is queued for it. Returns how many events are not sent there. Call it in a transaction.

    An event that waited for this destination alone is delivered where others have it, and dead otherwise.
    """
    run("DELETE FROM managed_destinations WHERE name = ?", name)
    sql = "UPDATE batches SET state = 'released', settled_at = ? WHERE destination = ? AND state = 'ready'"
    run(sql, now, name)
    pks = column("DELETE FROM outbox WHERE destination = ? RETURNING event_pk", name)
    for chunk in chunks(pks):
        _settle(chunk, now)
    closed = "UPDATE dead_letter SET state = 'discarded', closed_at = ?, result = 'its destination was removed'"
    run(f"{closed} WHERE destination = ? AND state IN ('open', 'replaying')", now, name)
    run("DELETE FROM destinations WHERE destination = ?", name)
    return len(pks)


def _settle(pks: Sequence[int], now: float) -> None:
    alone = (
        f"id IN ({marks(pks)}) AND state IN ('pending', 'in_flight') "
        "AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.event_pk = events.id)"
    )
    arrived = (
        "EXISTS (SELECT 1 FROM batch_events be JOIN batches b ON b.id = be.batch_id "
        "WHERE be.event_pk = events.id AND b.state = 'delivered')"
    )
    delivered = f"UPDATE events SET state = 'delivered', delivered = TRUE, delivered_at = ? WHERE {alone} AND {arrived}"
    changed(delivered, now, *pks)
    run(f"UPDATE events SET state = 'dead' WHERE {alone}", *pks)
