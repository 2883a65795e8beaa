"""The dead_letter table and its states: `open` → `replaying` → `replayed`, or `open` → `discarded`.

A replay closes the row and never deletes it; an event that dies again gets a new row.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from csi import clock
from csi.logs import redact
from csi.store import counters, events, outbox
from csi.store.batches import Batch
from csi.store.db import changed, chunks, column, fetch, fetch_all, marks, number, run
from csi.store.events import StoredEvent

Cause = Literal["transient", "destination", "event", "malformed", "crash"]
OLD_CAUSES = {"endpoint": "destination"}
"""The word of release 1.0 for a cause: filters and the metric still know it."""
Kind = Literal["event", "item"]

REDRIVABLE: tuple[Cause, ...] = ("transient", "destination")
"""Causes for which auto-redrive applies: the receiver failed, not the event."""

CRASH_ROUNDS = 1
"""Auto-redrives of an event whose sending ended the process: another event may have been the reason."""

PROBE_CANDIDATES = 20
"""Dead letters that are sent as probes in rotation: one that is refused for its own fault must not be the only one."""

STATES = ("open", "replaying", "replayed", "discarded")

COLUMNS = (
    "id, event_id, event_json, error_reason, retry_count, source, destination, cause, status, state, rounds, "
    "first_seen_at, died_at, closed_at, result"
)
_REPLAYING = "state = 'replaying' AND destination = ?"


@dataclass(frozen=True)
class StoredDeadLetter:
    """One row of dead_letter: an event that could not be delivered to one destination, or an item that could not
    become an event."""

    id: int
    event_id: str
    """The item's dedupe key, where there is no event."""
    event_json: str
    reason: str
    retry_count: int
    source: str
    destination: str
    """Empty for an item."""
    cause: Cause
    status: int | None
    state: str
    rounds: int
    first_seen_at: float | None
    died_at: float
    closed_at: float | None
    result: str | None

    @property
    def payload(self) -> dict[str, Any]:
        """The event, or the raw item under `raw`. Empty when the stored JSON cannot be read."""
        try:
            found = json.loads(self.event_json)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def title(self) -> str:
        """The title of the event's subject, or an empty string."""
        subject = self.payload.get("subject")
        text = subject.get("title") if isinstance(subject, dict) else None
        return text if isinstance(text, str) else ""

    @property
    def kind(self) -> Kind:
        return "item" if "raw" in self.payload else "event"


def add_events(
    batch: Batch,
    rows: Sequence[StoredEvent],
    *,
    cause: Cause,
    reason: str,
    status: int | None,
    attempts: int,
    now: float,
) -> None:
    """Store events of a batch as dead letters. Call it inside the transaction that settles the batch."""
    event_ids = [row.event_id for row in rows]
    rounds: dict[str, int] = {}
    for chunk in chunks(event_ids):  # the new row continues the replay count of the row that is closed below
        sql = f"SELECT event_id, rounds FROM dead_letter WHERE {_REPLAYING} AND event_id IN ({marks(chunk)})"
        rounds |= dict(fetch(sql, batch.destination, *chunk))
    close_replays(event_ids, batch.destination, result="died again", now=now)
    for row in rows:
        insert(
            now,
            event_id=row.event_id,
            item_key=row.dedupe_key,
            event_json=json.dumps(events.as_contract(row, clock.iso(now) if attempts else None)),
            error_reason=redact(reason),
            retry_count=attempts,
            source=row.source,
            destination=batch.destination,
            cause=cause,
            status=status,
            rounds=rounds.get(row.event_id, 0),
            first_seen_at=row.first_seen_at,
        )
        counters.add("events", source=row.source, label="dlq")
    outbox.remove(batch.id, [row.id for row in rows])
    events.mark([row.id for row in rows], "quarantined" if cause == "crash" else "dead", "pending", "in_flight")


def add_item(
    key: str, source: str, raw: dict[str, Any], *, cause: Cause, reason: str, seen_at: float, now: float
) -> None:
    """Store an item that could not become an event, with its raw payload."""
    insert(
        now,
        event_id=key,
        item_key=key,
        event_json=json.dumps({"raw": raw}),
        error_reason=redact(reason),
        source=source,
        destination="",
        cause=cause,
        first_seen_at=seen_at,
    )
    counters.add("events", source=source, label="malformed")


def insert(now: float, **values: object) -> None:
    """Write one row with these columns. Counts nothing."""
    values |= {"created_at": clock.iso(now), "died_at": now}
    run(f"INSERT INTO dead_letter ({', '.join(values)}) VALUES ({marks(list(values))})", *values.values())


def close_replays(event_ids: Sequence[str], destination: str, *, result: str, now: float) -> None:
    """Close the replays of these events as `delivered`, or as `died again` (a new dead letter is then written)."""
    for chunk in chunks(event_ids):
        sql = (
            "UPDATE dead_letter SET state = 'replayed', closed_at = ?, result = ? "
            f"WHERE {_REPLAYING} AND event_id IN ({marks(chunk)}) RETURNING source"
        )
        for source, count in Counter(column(sql, now, result, destination, *chunk)).items():
            counters.add("events", count, source=source, label="replayed")


def close_item(letter_id: int, *, result: str, now: float) -> None:
    """Close the replay of an item: it became an event, was known already, or died again."""
    sql = "UPDATE dead_letter SET state = 'replayed', closed_at = ?, result = ? WHERE id = ? AND state = 'replaying'"
    run(sql, now, result, letter_id)


def begin_replay(letter_id: int) -> bool:
    """`open` → `replaying`. False when another process was first, or it is closed."""
    sql = "UPDATE dead_letter SET state = 'replaying', rounds = rounds + 1 WHERE id = ? AND state = 'open'"
    return bool(changed(sql, letter_id))


def reopen(letter_id: int) -> None:
    """`replaying` → `open`: it could not be requeued. The round counts, so that auto-redrive ends."""
    run("UPDATE dead_letter SET state = 'open' WHERE id = ? AND state = 'replaying'", letter_id)


def discard(letter_id: int, now: float, result: str) -> bool:
    """`open` → `discarded`. False when it was not open."""
    sql = "UPDATE dead_letter SET state = 'discarded', closed_at = ?, result = ? WHERE id = ? AND state = 'open'"
    return bool(changed(sql, now, result, letter_id))


def redrivable(
    destination: str, max_rounds: int, *, success_at: float, crash_before: float, limit: int
) -> list[StoredDeadLetter]:
    """For auto-redrive, oldest first: the receiver failed and has succeeded since (`success_at`), or an old crash."""
    sql = (
        f"SELECT {COLUMNS} FROM dead_letter WHERE state = 'open' AND destination = ? "
        f"AND ((cause IN ({marks(REDRIVABLE)}) AND rounds < ? AND died_at <= ?) "
        "OR (cause = 'crash' AND rounds < ? AND died_at <= ?)) ORDER BY id LIMIT ?"
    )
    causes = (*REDRIVABLE, max_rounds, success_at, CRASH_ROUNDS, crash_before)
    return fetch_all(StoredDeadLetter, sql, destination, *causes, limit)


def probe_candidates(destination: str, max_rounds: int) -> list[StoredDeadLetter]:
    """The oldest dead letters that auto-redrive would send: one of them serves as the probe of a failing receiver."""
    sql = (
        f"SELECT {COLUMNS} FROM dead_letter WHERE state = 'open' AND cause IN ({marks(REDRIVABLE)}) "
        "AND destination = ? AND rounds < ? ORDER BY id LIMIT ?"
    )
    return fetch_all(StoredDeadLetter, sql, *REDRIVABLE, destination, max_rounds, PROBE_CANDIDATES)


def attribute_to_receiver(destination: str, since: float) -> int:
    """The receiver refused everything: recent refusals get the cause `destination`, so that auto-redrive applies."""
    sql = (
        "UPDATE dead_letter SET cause = 'destination' "
        "WHERE state = 'open' AND cause = 'event' AND destination = ? AND died_at > ?"
    )
    return changed(sql, destination, since)


def reopen_after_probe(batch: Batch, rows: Sequence[StoredEvent]) -> None:
    """`replaying` → `open` after a failed probe: the dead letter is as before, and the probe uses no round."""
    ids = [row.id for row in rows]
    outbox.remove(batch.id, ids)
    events.mark(ids, "dead", "pending", "in_flight")
    sql = "UPDATE dead_letter SET state = 'open', rounds = rounds - 1 WHERE id = ? AND state = 'replaying'"
    run(sql, batch.letter_id)


def find(letter_id: int) -> StoredDeadLetter | None:
    return next(iter(by_ids([letter_id])), None)


def by_ids(ids: Sequence[int]) -> list[StoredDeadLetter]:
    """The existing ones, ordered by id."""
    return [
        StoredDeadLetter(*row)
        for chunk in chunks(ids)
        for row in fetch(f"SELECT {COLUMNS} FROM dead_letter WHERE id IN ({marks(chunk)}) ORDER BY id", *chunk)
    ]


def of_item(key: str) -> list[StoredDeadLetter]:
    """All dead letters of this item and of its events, oldest first."""
    return fetch_all(StoredDeadLetter, f"SELECT {COLUMNS} FROM dead_letter WHERE item_key = ? ORDER BY id", key)


def open_count(destination: str | None = None) -> int:
    """The size of the DLQ: open dead letters of all destinations, or of one."""
    sql = "SELECT COUNT(*) FROM dead_letter WHERE state = 'open'"
    return number(sql) if destination is None else number(f"{sql} AND destination = ?", destination)


def redrivable_counts() -> dict[str, int]:
    """By destination: open dead letters whose cause is the receiver, which are sent again when it recovers."""
    causes = f"cause IN ({marks(REDRIVABLE)})"
    sql = f"SELECT destination, COUNT(*) FROM dead_letter WHERE state = 'open' AND {causes} GROUP BY destination"
    return dict(fetch(sql, *REDRIVABLE))
