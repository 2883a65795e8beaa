"""Dead letters: `open` → `replaying` → `replayed`, or `discarded`. None is ever deleted by replay."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from csi import clock
from csi.store import counters, events, outbox
from csi.store.batches import Batch
from csi.store.db import chunks, fetch, marks, run
from csi.store.events import StoredEvent
from csi.store.models import DeadLetter

Cause = Literal["transient", "endpoint", "event", "malformed", "crash"]

REDRIVABLE: tuple[Cause, ...] = ("transient", "endpoint")
"""The receiver's fault, not the event's."""

_REPLAYING = "state = 'replaying' AND destination = ?"


def bury(
    batch: Batch,
    rows: Sequence[StoredEvent],
    *,
    cause: Cause,
    reason: str,
    status: int | None,
    attempts: int,
    now: float,
) -> None:
    """Events of a batch become dead letters. Call it inside the transaction that settles the batch."""
    event_ids = [row.event_id for row in rows]
    rounds = _rounds(event_ids, batch.destination)
    close_replays(event_ids, batch.destination, result="died again", now=now)
    for row in rows:
        _write(
            event_id=row.event_id,
            event_json=json.dumps(events.as_contract(row, clock.iso(now) if attempts else None)),
            error_reason=reason,
            retry_count=attempts,
            source=row.source,
            destination=batch.destination,
            cause=cause,
            status=status,
            rounds=rounds.get(row.event_id, 0),
            first_seen_at=row.first_seen_at,
            now=now,
        )
        counters.add("events", source=row.source, label="dlq")
    outbox.leave(batch.id, [row.id for row in rows])
    events.mark([row.id for row in rows], "quarantined" if cause == "crash" else "dead", "pending", "in_flight")


def bury_item(
    key: str, source: str, raw: dict[str, Any], *, cause: Cause, reason: str, seen_at: float, now: float
) -> None:
    """An item that could not become an event is kept with its raw payload."""
    _write(
        event_id=key,
        event_json=json.dumps({"raw": raw}),
        error_reason=reason,
        source=source,
        cause=cause,
        first_seen_at=seen_at,
        now=now,
    )
    counters.add("events", source=source, label="dlq")


def _write(*, now: float, **values: Any) -> None:
    DeadLetter.insert(created_at=clock.iso(now), died_at=now, **values).execute()


def _rounds(event_ids: Sequence[str], destination: str) -> dict[str, int]:
    """How often each event was sent again already."""
    found: dict[str, int] = {}
    for chunk in chunks(event_ids):
        sql = f"SELECT event_id, rounds FROM dead_letter WHERE {_REPLAYING} AND event_id IN ({marks(chunk)})"
        found |= dict(fetch(sql, destination, *chunk))
    return found


def close_replays(event_ids: Sequence[str], destination: str, *, result: str, now: float) -> None:
    """What was being replayed has ended: `delivered`, or `died again` (a new letter then stands beside it)."""
    for chunk in chunks(event_ids):
        run(
            "UPDATE dead_letter SET state = 'replayed', closed_at = ?, result = ? "
            f"WHERE {_REPLAYING} AND event_id IN ({marks(chunk)})",
            now,
            result,
            destination,
            *chunk,
        )


def redrivable(destination: str, max_rounds: int, limit: int) -> list[DeadLetter]:
    waiting = (
        (DeadLetter.destination == destination)
        & (DeadLetter.state == "open")
        & DeadLetter.cause.in_(REDRIVABLE)
        & (DeadLetter.rounds < max_rounds)
    )
    return list(DeadLetter.select().where(waiting).order_by(DeadLetter.id).limit(limit))


def open_count() -> int:
    return int(DeadLetter.select().where(DeadLetter.state == "open").count())


def listing(limit: int, *, only_open: bool = True) -> list[DeadLetter]:
    query = DeadLetter.select().order_by(DeadLetter.id.desc()).limit(limit)
    return list(query.where(DeadLetter.state == "open") if only_open else query)
