"""The inbox: raw items that were seen and are not yet events. `new` → deleted, or `quarantined`."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from csi.store.db import chunks, new_token
from csi.store.models import InboxItem, Watch

GRACE_SECONDS = 5.0
"""How long the wake-up that follows the commit may take before rescue repeats it."""

LEASE_SECONDS = 30.0
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
    """Store items in the order given. Returns the ids of those that were not waiting already."""
    stored = []
    for item in items:
        query = InboxItem.insert(
            watch_id=watch.id,
            item_key=item.key,
            event_type=item.event_type,
            occurred_at=item.occurred_at,
            payload_json=json.dumps(item.payload),  # as ASCII: a lone surrogate is no reason to lose an item
            seen_at=now,
            wake_at=now + GRACE_SECONDS,
        ).on_conflict_ignore()
        if query.as_rowcount().execute():
            stored.append(item.key)
    return _ids_of(stored)


def _ids_of(keys: list[str]) -> list[int]:
    found: list[int] = []
    for chunk in chunks(keys):
        rows = InboxItem.select(InboxItem.id).where(InboxItem.item_key.in_(chunk))
        found += [row.id for row in rows]
    return sorted(found)


def claim(item_id: int, now: float) -> InboxItem | None:
    """Hold one item. The claim is counted and committed before the item is handled, so that a crash leaves a trace."""
    free = InboxItem.lease_until.is_null() | (InboxItem.lease_until < now)
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
    """Items whose wake-up seems lost, oldest first; each is handed out once until its next wake time."""
    rows = InboxItem.select(InboxItem.id).where((InboxItem.state == "new") & (InboxItem.wake_at <= now))
    ids = [row.id for row in rows.order_by(InboxItem.id).limit(limit)]
    if ids:
        due = InboxItem.id.in_(ids) & (InboxItem.wake_at <= now)
        InboxItem.update(wake_at=now + 2 * GRACE_SECONDS).where(due).execute()
    return ids


def waiting_count() -> int:
    return int(InboxItem.select().where(InboxItem.state == "new").count())
