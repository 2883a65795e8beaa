"""Dedupe keys of known items. A key expires `dedupe_days` after the source last listed its item."""

from collections.abc import Sequence

from csi import clock
from csi.store.db import chunks, column, fetch, marks, run

DAY = 86_400.0
WAITING = "waiting"


def known(keys: Sequence[str]) -> set[str]:
    """Those of the keys that were emitted, marked as seen, or are in the inbox."""
    found: set[str] = set()
    for chunk in chunks(keys):
        listed = marks(chunk)
        sql = (
            f"SELECT key FROM dedupe_keys WHERE key IN ({listed}) "
            f"UNION ALL SELECT item_key FROM inbox WHERE item_key IN ({listed})"
        )
        found.update(column(sql, *chunk, *chunk))
    return found


def reasons(keys: Sequence[str]) -> dict[str, str]:
    """Why each of the keys is known; WAITING for an item in the inbox."""
    found: dict[str, str] = {}
    for chunk in chunks(keys):
        waiting = column(f"SELECT item_key FROM inbox WHERE item_key IN ({marks(chunk)})", *chunk)
        found |= dict.fromkeys(waiting, WAITING)
        found |= dict(fetch(f"SELECT key, reason FROM dedupe_keys WHERE key IN ({marks(chunk)})", *chunk))
    return found


def known_before(keys: Sequence[str], moment: float) -> set[str]:
    """Those of the keys that were known before this moment. A poll gap noticed at that moment ends at such an item."""
    found: set[str] = set()
    for chunk in chunks(keys):
        listed = marks(chunk)
        sql = (
            f"SELECT key FROM dedupe_keys WHERE key IN ({listed}) AND (first_seen_at IS NULL OR first_seen_at < ?) "
            f"UNION ALL SELECT item_key FROM inbox WHERE item_key IN ({listed}) AND seen_at < ?"
        )
        found.update(column(sql, *chunk, moment, *chunk, moment))
    return found


def remember(keys: Sequence[str], reason: str, now: float, days: float) -> set[str]:
    """Mark keys as seen. Returns those that were new; an existing key keeps its first reason."""
    expires, row = clock.iso(now + days * DAY), "(?, ?, ?, ?)"
    found: set[str] = set()
    for chunk in chunks(list(dict.fromkeys(keys)), 100):
        # Of two workers that handle the same item at once, only one gets the key back and stores the event.
        sql = (
            f"INSERT INTO dedupe_keys (key, expires_at, reason, first_seen_at) VALUES {', '.join([row] * len(chunk))} "
            "ON CONFLICT (key) DO NOTHING RETURNING key"
        )
        found.update(column(sql, *(value for key in chunk for value in (key, expires, reason, now))))
    return found


def change_reason(keys: Sequence[str], reason: str) -> None:
    """Keys that were remembered in this transaction, for a reason that is found only now."""
    for chunk in chunks(keys):
        run(f"UPDATE dedupe_keys SET reason = ? WHERE key IN ({marks(chunk)})", reason, *chunk)


def refresh(keys: Sequence[str], now: float, days: float) -> None:
    """Extend keys whose items the source still lists. Each key is written at most once a day, because a poll should be
    mostly reads; more often where `dedupe_days` is so short that it could expire in between."""
    life = days * DAY
    expires, stale = clock.iso(now + life), clock.iso(now + life - min(DAY, life / 4))
    for chunk in chunks(keys):
        sql = f"UPDATE dedupe_keys SET expires_at = ? WHERE key IN ({marks(chunk)}) AND expires_at < ?"
        run(sql, expires, *chunk, stale)


def forget(key: str, reason: str) -> None:
    """Delete a key that was stored for this reason; one stored for another reason is kept."""
    run("DELETE FROM dedupe_keys WHERE key = ? AND reason = ?", key, reason)
