"""Drop pending events that the replaced poller has already sent; a closed dead letter records the reason."""

import json
from collections.abc import Sequence

from csi import clock
from csi.store import events, outbox
from csi.store.db import chunks, fetch, marks, run, writing
from csi.store.events import COLUMNS, StoredEvent

REASON = "another poller has sent it"

# Not `dead_letters.add_events`: that counts a failed delivery, and no delivery has failed.
_INSERT = """
    INSERT INTO dead_letter (event_id, item_key, event_json, error_reason, created_at, source, destination, cause,
        state, first_seen_at, died_at, closed_at, result)
    VALUES (?, ?, ?, ?, ?, ?, ?, 'event', 'discarded', ?, ?, ?, 'taken over')
"""


def drop_pending(keys: Sequence[str], now: float) -> int:
    """Remove pending events with these keys from the outbox. Returns how many; in-flight events are not touched."""
    dropped = 0
    for chunk in chunks(keys, 200):
        select = f"SELECT {COLUMNS} FROM events e WHERE e.state = 'pending' AND e.dedupe_key IN ({marks(chunk)})"
        with writing():
            rows = [StoredEvent(*row) for row in fetch(select, *chunk)]
            for row in rows:
                what = (row.event_id, row.dedupe_key, json.dumps(events.as_contract(row, None)), REASON, clock.iso(now))
                for destination in outbox.drop_pending(row.id):
                    run(_INSERT, *what, row.source, destination, row.first_seen_at, now, now)
            events.mark([row.id for row in rows], "dead", "pending")
        dropped += len(rows)
    return dropped


def count_pending(keys: Sequence[str]) -> int:
    sql = "SELECT COUNT(*) FROM events WHERE state = 'pending' AND dedupe_key IN"
    return sum(int(fetch(f"{sql} ({marks(chunk)})", *chunk)[0][0]) for chunk in chunks(keys))
