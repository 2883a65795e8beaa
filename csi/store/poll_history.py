"""The last reads of each watch: a ring of KEPT rows, in which the newest read replaces the oldest."""

from dataclasses import dataclass
from typing import Literal

from csi.store.db import changed, columns, fetch_all, number, run
from csi.store.models import Watch

KEPT = 200

ReadResultName = Literal["new", "nothing_new", "unchanged", "failed"]
"""`unchanged`: the server said that nothing changed (http 304), or the response was the same."""


@dataclass(frozen=True)
class PastRead:
    """One read of a watch. Fields are in the order that `of_watch` selects."""

    at: float
    seconds: float
    result: ReadResultName
    new_items: int
    error: str | None


# One statement in the transaction of the read itself, and no search: the watch knows how often it was read.
_PUT = """
    INSERT INTO poll_history (watch_id, slot, at, seconds, result, new_items, error) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (watch_id, slot) DO UPDATE SET at = excluded.at, seconds = excluded.seconds, result = excluded.result,
        new_items = excluded.new_items, error = excluded.error
"""


def add(watch: Watch, read: PastRead) -> dict[str, int]:
    """Part of the transaction that records the read. Returns the column that the caller changes on the watch."""
    run(_PUT, watch.id, watch.reads % KEPT, read.at, read.seconds, read.result, read.new_items, read.error)
    return {"reads": watch.reads + 1}


def of_watch(watch_id: int) -> list[PastRead]:
    """The oldest first."""
    sql = f"SELECT {columns(PastRead)} FROM poll_history WHERE watch_id = ? ORDER BY at, slot"
    return fetch_all(PastRead, sql, watch_id)


_REMOVED = """
    SELECT w.id FROM watches w WHERE w.state = 'removed' AND COALESCE(w.last_poll_at, 0) < ?
        AND EXISTS (SELECT 1 FROM poll_history h WHERE h.watch_id = w.id)
"""


def drop_of_removed(before: float) -> int:
    """Delete the history of a few removed watches that were read last before this time. Part of the caller's
    transaction. Returns how many rows there were."""
    return changed(f"DELETE FROM poll_history WHERE watch_id IN ({_REMOVED} ORDER BY w.id LIMIT 5)", before)


def count_of_removed(before: float) -> int:
    return number(f"SELECT COUNT(*) FROM poll_history WHERE watch_id IN ({_REMOVED})", before)
