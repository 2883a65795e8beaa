"""The inbox: raw items that were seen and are not yet events. `new` → deleted, or `quarantined`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from csi.store.db import changed, chunks, column, fetch, marks, new_token, number, run, skip_locked, writing
from csi.store.models import Watch

GRACE_SECONDS = 5.0
"""How long the wake-up that follows the commit may take before rescue repeats it."""

AT_ONCE = 250
"""Items of one poll that are woken at once; the poll schedules as many for each second after it. While nothing else
waits, they are handled ahead of that (csi.pipeline.ingest.ingest_ahead)."""

LEASE_SECONDS = 30.0

INSERT = """
    INSERT INTO inbox (watch_id, item_key, event_type, occurred_at, payload_json, seen_at, wake_at)
    VALUES {rows} ON CONFLICT DO NOTHING RETURNING id
"""
_ROW = "(?, ?, ?, ?, ?, ?, ?)"
MAX_CLAIMS = 3
"""An item is quarantined after its handling ended the process this often. A claim counts when its lease expired; a
released lease does not count."""


TOGETHER = 50
"""Items that one task handles: those of its watch that were woken together."""

_COLUMNS = "id, watch_id, item_key, event_type, occurred_at, payload_json, seen_at, claims, lease_token, letter_id"
_LOOK = """
    SELECT watch_id, wake_at, lease_token IS NULL AND claims = 0 FROM inbox
    WHERE id = ? AND state = 'new' AND (lease_until IS NULL OR lease_until < ?)
"""
# One suspect at a time: if the process dies again, the item that caused it is known.
_CLAIM_ONE = f"""
    UPDATE inbox SET claims = claims + CASE WHEN lease_token IS NULL THEN 0 ELSE 1 END,
        lease_token = ?, lease_until = ?, wake_at = ?
    WHERE id = ? AND state = 'new' AND (lease_until IS NULL OR lease_until < ?)
        AND NOT EXISTS (
            SELECT 1 FROM inbox o WHERE o.state = 'new' AND o.claims > 0 AND o.lease_until >= ? AND o.id <> inbox.id)
    RETURNING {_COLUMNS}
"""
# Items that were never claimed and have the same wake time: those that one poll put there together.
_CLAIM_RUN = f"""
    UPDATE inbox SET lease_token = ?, lease_until = ?, wake_at = ?
    WHERE id IN (
        SELECT o.id FROM inbox o WHERE o.state = 'new' AND o.watch_id = ? AND o.id >= ? AND o.wake_at = ?
            AND o.lease_token IS NULL AND o.claims = 0
        ORDER BY o.id LIMIT {TOGETHER} {{skip_locked}})
    RETURNING {_COLUMNS}
"""


@dataclass(frozen=True)
class ClaimedItem:
    """An item that this thread has claimed."""

    id: int
    watch_id: int
    item_key: str
    event_type: str
    occurred_at: str
    payload_json: str
    seen_at: float
    claims: int
    lease_token: str
    letter_id: int | None = None
    """The dead letter that is replayed with this item."""
    turn_at: float = 0.0
    """When the pace of a flood would have handled it. 0: now, it is not handled ahead of its turn."""


@dataclass(frozen=True)
class NewItem:
    """One item to put into the inbox."""

    key: str
    event_type: str
    occurred_at: str
    payload: dict[str, Any]


def put(watch: Watch, items: Iterable[NewItem], now: float) -> list[int]:
    """Store items in the order given. Returns the ids of those that were not waiting already. The caller wakes AT_ONCE
    of them a second, so that a flood from one source does not hold up the rest; those of one second share `wake_at`."""
    rows: list[tuple[Any, ...]] = []
    for place, item in enumerate(items):
        # As ASCII, and whatever it holds as text: no lone surrogate or date object is a reason to lose an item.
        payload, wake_at = json.dumps(item.payload, default=str), now + place // AT_ONCE + GRACE_SECONDS
        rows.append((watch.id, item.key, item.event_type, item.occurred_at, payload, now, wake_at))
    # Plain SQL: Peewee takes a second to write the statements for ten thousand rows.
    return sorted(
        item_id
        for chunk in chunks(rows)
        for item_id in column(INSERT.replace("{rows}", ", ".join([_ROW] * len(chunk))), *chain.from_iterable(chunk))
    )


def claim(item_id: int, now: float, *, ahead: bool = False) -> list[ClaimedItem]:
    """Claim this item and, if it was never claimed before, those of its watch that were woken with it. `ahead`: their
    turn has not come.

    The claim is committed before anything is handled, so that a crash leaves an expired lease behind. An item with an
    expired lease is claimed alone: if it ends the process again, no other item is counted with it.
    """
    seen = fetch(_LOOK, item_id, now)
    if not seen:
        return []
    watch_id, wake_at, is_fresh = seen[0]
    token, until = new_token(), now + LEASE_SECONDS
    # The statements check the lease again: another thread may have claimed the item since it was read.
    with writing():
        if is_fresh:
            run_ = _CLAIM_RUN.replace("{skip_locked}", skip_locked())
            found = fetch(run_, token, until, until, watch_id, item_id, wake_at)
        else:
            found = fetch(_CLAIM_ONE, token, until, until, item_id, now, now)
    turn_at = wake_at - GRACE_SECONDS if ahead else 0.0
    return sorted((ClaimedItem(*(*row, turn_at)) for row in found), key=lambda item: item.id)


def next_ahead(now: float, sources: Sequence[str]) -> int | None:
    """Of the items whose turn has not come, the one whose turn is next."""
    sql = (
        "SELECT i.id FROM inbox i WHERE i.state = 'new' AND i.wake_at > ? AND i.lease_token IS NULL AND i.claims = 0 "
        f"AND EXISTS (SELECT 1 FROM watches w WHERE w.id = i.watch_id AND w.source IN ({marks(sources)})) "
        "ORDER BY i.wake_at, i.id LIMIT 1"
    )
    return number(sql, now + GRACE_SECONDS, *sources) or None


def waiting(at_most: int) -> int:
    """Items that are not events yet, counted no further than `at_most`."""
    return number("SELECT COUNT(*) FROM (SELECT 1 FROM inbox WHERE state = 'new' LIMIT ?) AS found", at_most)


def next_suspect(now: float) -> int | None:
    """Another item whose lease expired with a process that died, and that is not claimed again yet."""
    sql = "SELECT id FROM inbox WHERE state = 'new' AND lease_token IS NOT NULL AND lease_until < ? ORDER BY id LIMIT 1"
    return number(sql, now) or None


def remove(items: Sequence[ClaimedItem]) -> set[int]:
    """Delete items that became events or dead letters. Returns the ids of those whose lease was still held; the caller
    must not store anything of the others."""
    if not items:
        return set()
    # By token: an item whose lease expired may be claimed by another thread by now, and keeps its row.
    sql = f"DELETE FROM inbox WHERE lease_token = ? AND id IN ({marks(items)}) RETURNING id"
    return set(column(sql, items[0].lease_token, *(item.id for item in items)))


def release(item: ClaimedItem, until: float) -> None:
    """Release the lease without a result; the item is due at `until`."""
    # Without a token the next claim counts no crash (see MAX_CLAIMS).
    sql = "UPDATE inbox SET lease_token = NULL, lease_until = NULL, wake_at = ? WHERE id = ? AND lease_token = ?"
    run(sql, until, item.id, item.lease_token)


def quarantine(item: ClaimedItem) -> None:
    sql = "UPDATE inbox SET state = 'quarantined', lease_token = NULL, lease_until = NULL"
    run(f"{sql} WHERE id = ? AND state = 'new'", item.id)


def requeue(watch_id: int, item: NewItem, *, letter_id: int, seen_at: float, now: float) -> bool:
    """Handle the item of a dead letter again. False: the item is in the inbox already."""
    # A quarantined item still has its row: it is reset instead, and counts no crash from before.
    sql = (
        "INSERT INTO inbox (watch_id, item_key, event_type, occurred_at, payload_json, seen_at, wake_at, letter_id) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (item_key) DO UPDATE SET state = 'new', claims = 0, "
        "wake_at = excluded.wake_at, letter_id = excluded.letter_id WHERE inbox.state = 'quarantined'"
    )
    what = (item.key, item.event_type, item.occurred_at, json.dumps(item.payload))
    return bool(changed(sql, watch_id, *what, seen_at, now, letter_id))


def delete_quarantined(keys: Sequence[str]) -> list[str]:
    """Delete quarantined items. Returns the keys of those that existed."""
    sql = f"DELETE FROM inbox WHERE state = 'quarantined' AND item_key IN ({marks(keys)}) RETURNING item_key"
    return column(sql, *keys)


def overdue(now: float, limit: int = 500) -> list[int]:
    """Items whose wake-up was lost, longest waiting first. Moves their wake time: each is returned once until then."""
    sql = "SELECT id FROM inbox WHERE state = 'new' AND wake_at <= ? ORDER BY wake_at LIMIT ?"
    ids = sorted(column(sql, now, limit))
    if ids:
        # Later by twice the grace period, or every pass of the maintenance loop would enqueue the same items again.
        sql = f"UPDATE inbox SET wake_at = ? WHERE id IN ({marks(ids)}) AND state = 'new' AND wake_at <= ?"
        run(sql, now + 2 * GRACE_SECONDS, *ids, now)
    return ids


def waiting_count() -> int:
    return number("SELECT COUNT(*) FROM inbox WHERE state = 'new'")
