"""Give events up without delivery: discard dead letters, delete old ones, drop what the replaced poller has sent."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from csi.dlq import dead_letters
from csi.dlq.dead_letters import StoredDeadLetter
from csi.store import dedupe, events, inbox, outbox
from csi.store.db import chunks, fetch, fetch_all, marks, number, run, writing
from csi.store.events import COLUMNS, StoredEvent

CHUNK = 200

# Age counts from the last change of state. A dead letter that is being replayed is never old.
_OLD = "state <> 'replaying' AND COALESCE(closed_at, died_at) < ?"


@dataclass(frozen=True)
class OldDeadLetters:
    """How many dead letters are old, and how many of those are open, so never delivered."""

    count: int
    open: int


def discard(letters: Sequence[StoredDeadLetter], now: float, *, result: str, key_days: float) -> list[int]:
    """Close dead letters without delivering their events. Returns the ids of those that were open."""
    with writing():
        closed = [letter for letter in letters if dead_letters.discard(letter.id, now, result)]
        _drop_from_inbox([letter.event_id for letter in closed if letter.cause == "crash"], now, key_days)
    return [letter.id for letter in closed]


def count_old(before: float) -> OldDeadLetters:
    sql = f"SELECT COUNT(*), COALESCE(SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END), 0) FROM dead_letter WHERE {_OLD}"
    ((count, still_open),) = fetch(sql, before)
    return OldDeadLetters(int(count), int(still_open))


def prune(before: float, now: float, *, key_days: float) -> int:
    """Delete one chunk of dead letters older than this, open ones too. Returns how many; 0 when none is left."""
    with writing():
        sql = f"SELECT id, event_id, state, cause FROM dead_letter WHERE {_OLD} ORDER BY id LIMIT ?"
        rows = fetch(sql, before, CHUNK)
        if not rows:
            return 0
        _drop_from_inbox([row[1] for row in rows if row[2:] == ("open", "crash")], now, key_days)
        run(f"DELETE FROM dead_letter WHERE id IN ({marks(rows)})", *(row[0] for row in rows))
    return len(rows)


def drop_sent_by_old_poller(keys: Sequence[str], now: float) -> int:
    """Remove pending events with these keys from the outbox; a closed dead letter records the reason. Returns how many;
    in-flight events are not touched."""
    dropped = 0
    for chunk in chunks(keys, 200):
        select = f"SELECT {COLUMNS} FROM events e WHERE e.state = 'pending' AND e.dedupe_key IN ({marks(chunk)})"
        with writing():
            rows = fetch_all(StoredEvent, select, *chunk)
            for row in rows:
                for destination in outbox.drop_pending(row.id):
                    # Not `add_events`: that counts a failed delivery, and no delivery has failed.
                    dead_letters.insert(
                        now,
                        event_id=row.event_id,
                        item_key=row.dedupe_key,
                        event_json=json.dumps(events.as_contract(row, None)),
                        error_reason="another poller has sent it",
                        source=row.source,
                        destination=destination,
                        cause="event",
                        state="discarded",
                        first_seen_at=row.first_seen_at,
                        closed_at=now,
                        result="taken over",
                    )
            events.mark([row.id for row in rows], "dead", "pending")
        dropped += len(rows)
    return dropped


def count_pending(keys: Sequence[str]) -> int:
    sql = "SELECT COUNT(*) FROM events WHERE state = 'pending' AND dedupe_key IN"
    return sum(number(f"{sql} ({marks(chunk)})", *chunk) for chunk in chunks(keys))


def _drop_from_inbox(keys: Sequence[str], now: float, key_days: float) -> None:
    """Delete quarantined items. Their keys stay known, because the source may list the items for years."""
    if keys:
        dedupe.remember(inbox.delete_quarantined(keys), "discarded", now, key_days)
