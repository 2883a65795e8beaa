"""Destinations that were added by command, and subscriptions of agents: their settings, without secrets, the overlap of
a rotation, and when a subscription expires."""

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

    owner: str | None = None
    """Of a subscription: the role of the token that made it. None: an operator added the destination."""
    expires_at: float | None = None
    """Of a subscription: nothing is sent after that, and the maintenance loop removes the row soon after."""


_LIVE = "(expires_at IS NULL OR expires_at > ?)"
_SELECT = f"SELECT {columns(ManagedDestination)} FROM managed_destinations"


def every(now: float) -> list[ManagedDestination]:
    """Without expired subscriptions."""
    return fetch_all(ManagedDestination, f"{_SELECT} WHERE {_LIVE} ORDER BY added_at, name", now)


def find(name: str) -> ManagedDestination | None:
    return fetch_one(ManagedDestination, f"{_SELECT} WHERE name = ?", name)


def versions(now: float) -> tuple[str, ...]:
    """Of all rows without expired subscriptions. Equal versions: nothing changed."""
    return tuple(column(f"SELECT version FROM managed_destinations WHERE {_LIVE} ORDER BY name", now))


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


def subscriptions(owner: str, now: float) -> int:
    """How many subscriptions of this owner have not expired."""
    return number(f"SELECT COUNT(*) FROM managed_destinations WHERE owner = ? AND {_LIVE}", owner, now)


def set_expiry(name: str, owner: str, expires_at: float) -> None:
    """Makes the row a subscription, or refreshes it."""
    sql = "UPDATE managed_destinations SET owner = ?, expires_at = ? WHERE name = ?"
    run(sql, owner, expires_at, name)


def expired(before: float) -> list[str]:
    """Subscriptions that expired before this time."""
    return column("SELECT name FROM managed_destinations WHERE expires_at <= ? ORDER BY name", before)


def expire_subscriptions(now: float) -> int:
    """All of them expire now. Returns how many had not."""
    return changed("UPDATE managed_destinations SET expires_at = ? WHERE expires_at > ?", now, now)


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
        alone = (
            f"id IN ({marks(chunk)}) AND state IN ('pending', 'in_flight') "
            "AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.event_pk = events.id)"
        )
        arrived = (
            "EXISTS (SELECT 1 FROM batch_events be JOIN batches b ON b.id = be.batch_id "
            "WHERE be.event_pk = events.id AND b.state = 'delivered')"
        )
        delivered = (
            f"UPDATE events SET state = 'delivered', delivered = TRUE, delivered_at = ? WHERE {alone} AND {arrived}"
        )
        changed(delivered, now, *chunk)
        run(f"UPDATE events SET state = 'dead' WHERE {alone}", *chunk)
    closed = "UPDATE dead_letter SET state = 'discarded', closed_at = ?, result = 'its destination was removed'"
    run(f"{closed} WHERE destination = ? AND state IN ('open', 'replaying')", now, name)
    run("DELETE FROM destinations WHERE destination = ?", name)
    return len(pks)
