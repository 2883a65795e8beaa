"""Events that somebody else has sent already: they leave the outbox, and a closed dead letter says why."""

import json
from collections.abc import Sequence

from csi import clock
from csi.store import events, outbox
from csi.store.db import chunks, fetch, marks, run, writing
from csi.store.events import COLUMNS, StoredEvent

REASON = "another poller has sent it"

# Not through `bury`: that counts a failure of delivery, and nothing has failed.
_LETTER = """
    INSERT INTO dead_letter (event_id, item_key, event_json, error_reason, created_at, source, destination, cause,
        state, first_seen_at, died_at, closed_at, result)
    VALUES (?, ?, ?, ?, ?, ?, ?, 'event', 'discarded', ?, ?, ?, 'taken over')
"""


def drop_pending(keys: Sequence[str], now: float) -> int:
    """Events with these keys that wait to be sent are not sent. Returns how many; one on its way goes on."""
    return sum(_take_chunk(chunk, now) for chunk in chunks(keys, 200))


def _take_chunk(keys: Sequence[str], now: float) -> int:
    select = f"SELECT {COLUMNS} FROM events e WHERE e.state = 'pending' AND e.dedupe_key IN ({marks(keys)})"
    with writing():
        rows = [StoredEvent(*row) for row in fetch(select, *keys)]
        for row in rows:
            for destination in outbox.drop_pending(row.id):
                _write_letter(row, destination, now)
        events.mark([row.id for row in rows], "dead", "pending")
    return len(rows)


def count_pending(keys: Sequence[str]) -> int:
    """Events with these keys that wait to be sent."""
    sql = "SELECT COUNT(*) FROM events WHERE state = 'pending' AND dedupe_key IN"
    return sum(int(fetch(f"{sql} ({marks(chunk)})", *chunk)[0][0]) for chunk in chunks(keys))


def _write_letter(row: StoredEvent, destination: str, now: float) -> None:
    content = json.dumps(events.as_contract(row, None))
    what = (row.event_id, row.dedupe_key, content, REASON, clock.iso(now))
    run(_LETTER, *what, row.source, destination, row.first_seen_at, now, now)
