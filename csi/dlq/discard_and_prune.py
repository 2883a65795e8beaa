"""Dead letters that nobody will send any more: discarded one by one, or deleted when they are old."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.dlq import dead_letters
from csi.dlq.dead_letters import StoredDeadLetter
from csi.store import dedupe, inbox
from csi.store.db import fetch, marks, run, writing

CHUNK = 200

# The age of a letter is the time since anything happened to it. One that is on its way is never old.
_OLD = "state <> 'replaying' AND COALESCE(closed_at, died_at) < ?"


@dataclass(frozen=True)
class OldDeadLetters:
    """How many letters are old, and how many of them were never delivered."""

    count: int
    open: int


def discard(letters: Sequence[StoredDeadLetter], now: float, *, result: str, key_days: float) -> list[int]:
    """Close letters for good: their events are not delivered. Returns the ids of those that were open."""
    with writing():
        closed = [letter for letter in letters if dead_letters.discard(letter.id, now, result)]
        _let_go([letter.event_id for letter in closed if letter.cause == "crash"], now, key_days)
    return [letter.id for letter in closed]


def count_old(before: float) -> OldDeadLetters:
    sql = f"SELECT COUNT(*), COALESCE(SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END), 0) FROM dead_letter WHERE {_OLD}"
    ((count, still_open),) = fetch(sql, before)
    return OldDeadLetters(int(count), int(still_open))


def prune(before: float, now: float, *, key_days: float) -> int:
    """Delete a few letters that are older than this, whatever their state. Returns how many; 0: there are none."""
    with writing():
        sql = f"SELECT id, event_id, state, cause FROM dead_letter WHERE {_OLD} ORDER BY id LIMIT ?"
        rows = fetch(sql, before, CHUNK)
        if not rows:
            return 0
        _let_go([row[1] for row in rows if row[2:] == ("open", "crash")], now, key_days)
        run(f"DELETE FROM dead_letter WHERE id IN ({marks(rows)})", *(row[0] for row in rows))
    return len(rows)


def _let_go(keys: Sequence[str], now: float, key_days: float) -> None:
    """A quarantined item leaves the inbox, but stays known: the source may show it for years."""
    if keys:
        dedupe.remember(inbox.give_up(keys), "discarded", now, key_days)
