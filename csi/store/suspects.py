"""Suspects: rows that were leased when a process died. The one that ends it must be kept apart from those beside it.

A row that was in two crashes waits until no other suspect is handled, so that only the row that ends the process
reaches the third. Items are handled one at a time from the first crash on (csi.store.inbox), messages wait for items,
batches for both.
"""

from csi.store.db import fetch

PATIENCE_SECONDS = 300.0
"""A row that is not claimed again for this long, for example because its source is gone, holds up no other."""

_WAITING = """
    SELECT 1 FROM {table} WHERE state = 'new' AND lease_token IS NOT NULL AND (claims > 0 OR lease_until < ?)
        AND lease_until > ? LIMIT 1
"""
_BATCH_SENDING = """
    SELECT 1 FROM batches WHERE state IN ('ready', 'sending') AND state = 'sending' AND crashes > 0
        AND lease_until >= ? AND id <> ? LIMIT 1
"""
_MESSAGE_CLAIMED = """
    SELECT 1 FROM inbound_messages WHERE state = 'new' AND claims > 0 AND lease_until >= ? AND id <> ? LIMIT 1
"""


def message_must_wait(message_id: int, now: float) -> bool:
    return bool(_waiting("inbox", now) or fetch(_MESSAGE_CLAIMED, now, message_id))


def batch_must_wait(batch_id: int, now: float) -> bool:
    return bool(_waiting("inbox", now) or _waiting("inbound_messages", now) or fetch(_BATCH_SENDING, now, batch_id))


def next_batch(now: float) -> int | None:
    """A batch whose lease expired with a process that died, and that is not claimed again yet."""
    sql = (
        "SELECT id FROM batches WHERE state IN ('ready', 'sending') AND state = 'sending' AND lease_until < ? "
        "ORDER BY id LIMIT 1"
    )
    found = fetch(sql, now)
    return int(found[0][0]) if found else None


def _waiting(table: str, now: float) -> bool:
    return bool(fetch(_WAITING.replace("{table}", table), now, now - PATIENCE_SECONDS))
