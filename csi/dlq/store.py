"""Dead letters: `open` → `replaying` → `replayed`, or `discarded`. None is ever deleted by replay."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from csi import clock
from csi.store import counters, events
from csi.store.db import chunks
from csi.store.models import DeadLetter, Event

Cause = Literal["transient", "endpoint", "event", "malformed", "crash"]

REDRIVABLE: tuple[Cause, ...] = ("transient", "endpoint")
"""The receiver's fault, not the event's."""


def bury(
    rows: Sequence[Event],
    *,
    cause: Cause,
    reason: str,
    status: int | None,
    attempts: int,
    now: float,
    state: str = "dead",
) -> None:
    """Events in flight become dead letters. Call it inside the transaction that settles their batch."""
    event_ids = [row.event_id for row in rows]
    rounds = _rounds(event_ids)
    close_replays(event_ids, result="died again", now=now)
    for row in rows:
        letter = events.as_contract(row, row.emitted_at)
        _write(
            event_id=row.event_id,
            event_json=json.dumps(letter),
            error_reason=reason,
            retry_count=attempts,
            source=row.source,
            cause=cause,
            status=status,
            rounds=rounds.get(row.event_id, 0),
            first_seen_at=row.first_seen_at,
            now=now,
        )
        counters.add("events", source=row.source, label="dlq")
    events.settle([row.id for row in rows], state, batch_id=None)


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


def _rounds(event_ids: Sequence[str]) -> dict[str, int]:
    """How often each event was sent again already."""
    found: dict[str, int] = {}
    for chunk in chunks(event_ids):
        replaying = DeadLetter.event_id.in_(chunk) & (DeadLetter.state == "replaying")
        for letter in DeadLetter.select(DeadLetter.event_id, DeadLetter.rounds).where(replaying):
            found[letter.event_id] = letter.rounds
    return found


def close_replays(event_ids: Sequence[str], *, result: str, now: float) -> None:
    """What was being replayed has ended: `delivered`, or `died again` (a new letter then stands beside it)."""
    for chunk in chunks(event_ids):
        replaying = DeadLetter.event_id.in_(chunk) & (DeadLetter.state == "replaying")
        DeadLetter.update(state="replayed", closed_at=now, result=result).where(replaying).execute()


def redrivable(max_rounds: int, limit: int) -> list[DeadLetter]:
    waiting = (DeadLetter.state == "open") & DeadLetter.cause.in_(REDRIVABLE) & (DeadLetter.rounds < max_rounds)
    return list(DeadLetter.select().where(waiting).order_by(DeadLetter.id).limit(limit))


def open_count() -> int:
    return int(DeadLetter.select().where(DeadLetter.state == "open").count())


def listing(limit: int, *, only_open: bool = True) -> list[DeadLetter]:
    query = DeadLetter.select().order_by(DeadLetter.id.desc()).limit(limit)
    return list(query.where(DeadLetter.state == "open") if only_open else query)
