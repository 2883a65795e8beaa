"""The inbox: raw items that were seen and are not yet events. `new` → deleted, or `quarantined`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from csi.store.db import chunks, new_token
from csi.store.models import InboxItem, Watch, database

GRACE_SECONDS = 5.0
"""How long the wake-up that follows the commit may take before rescue repeats it."""

AT_ONCE = 250
"""Items of one poll that are woken at once, and then every second."""

LEASE_SECONDS = 30.0
FAR_SECONDS = 3600.0
"""No wake-up is planned later than this."""

INSERT = """
    INSERT INTO inbox (watch_id, item_key, event_type, occurred_at, payload_json, seen_at, wake_at)
    VALUES {rows} ON CONFLICT DO NOTHING RETURNING id
"""
MAX_CLAIMS = 3
"""An item whose handling ended the process this often is set aside (DESIGN §1)."""


@dataclass(frozen=True)
class NewItem:
    """One item to put into the inbox."""

    key: str
    event_type: str
    occurred_at: str
    payload: dict[str, Any]


def put(watch: Watch, items: Iterable[NewItem], now: float) -> list[int]:
    """Store items in the order given. Returns the ids of those that were not waiting already. Only the first
    AT_ONCE are to be woken: rescue finds the others a second's worth at a time, so that a flood from one source does
    not hold up the rest."""
    rows = [_row(watch, item, now, place) for place, item in enumerate(items)]
    return sorted(item_id for chunk in chunks(rows) for item_id in _insert(chunk))


def _row(watch: Watch, item: NewItem, now: float, place: int) -> tuple[Any, ...]:
    payload = json.dumps(item.payload)  # as ASCII: a lone surrogate is no reason to lose an item
    wake_at = now + (GRACE_SECONDS if place < AT_ONCE else place // AT_ONCE)
    return watch.id, item.key, item.event_type, item.occurred_at, payload, now, wake_at


def _insert(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    """Plain SQL: Peewee takes a second to write the statements for ten thousand rows."""
    row = f"({', '.join([database.param] * len(rows[0]))})"
    statement = INSERT.replace("{rows}", ", ".join([row] * len(rows)))
    cursor = database.execute_sql(statement, [value for values in rows for value in values])
    return [found[0] for found in cursor.fetchall()]


def claim(item_id: int, now: float) -> InboxItem | None:
    """Hold one item. The claim is counted and committed before the item is handled, so that a crash leaves a trace."""
    free = InboxItem.lease_until.is_null() | _past(InboxItem.lease_until, now, 3 * LEASE_SECONDS)
    token, until = new_token(), now + LEASE_SECONDS
    taken = (
        InboxItem.update(lease_token=token, lease_until=until, wake_at=until, claims=InboxItem.claims + 1)
        .where((InboxItem.id == item_id) & (InboxItem.state == "new") & free)
        .execute()
    )
    return InboxItem.get_or_none(id=item_id, lease_token=token) if taken else None


def remove(item: InboxItem) -> bool:
    """The item became an event or a dead letter. False: the lease was lost, and with it the right to say so."""
    held = (InboxItem.id == item.id) & (InboxItem.lease_token == item.lease_token)
    return bool(InboxItem.delete().where(held).execute())


def quarantine(item: InboxItem) -> None:
    InboxItem.update(state="quarantined", lease_token=None, lease_until=None).where(
        (InboxItem.id == item.id) & (InboxItem.state == "new")
    ).execute()


def overdue(now: float, limit: int = 500) -> list[int]:
    """Items whose wake-up seems lost, longest waiting first; each is handed out once until its next wake time."""
    due = (InboxItem.state == "new") & _past(InboxItem.wake_at, now, FAR_SECONDS)
    ids = [row.id for row in InboxItem.select(InboxItem.id).where(due).order_by(InboxItem.wake_at).limit(limit)]
    if ids:
        again = InboxItem.id.in_(ids) & _past(InboxItem.wake_at, now, FAR_SECONDS)
        InboxItem.update(wake_at=now + 2 * GRACE_SECONDS).where(again).execute()
    return sorted(ids)


def _past(column: Any, now: float, far: float) -> Any:
    """Over, or so far ahead that the clock must have been set back since."""
    return (column <= now) | (column > now + far)


def waiting_count() -> int:
    return int(InboxItem.select().where(InboxItem.state == "new").count())
