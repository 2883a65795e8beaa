"""Events: content is written once; the state is pending, in_flight, delivered, dead or quarantined."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from csi import clock
from csi.ingester.event import CreatorSignalEvent
from csi.store.db import changed, chunks, columns, fetch, fetch_one, marks, number, run, value
from csi.store.models import Event

_CONTRACT = (
    "event_id, dedupe_key, source, event_type, occurred_at, received_at, subject_json, routing_json, metadata_json, "
    "raw_ref, contract_version"
)
_ROW = f"({', '.join('?' * 16)})"
_INSERT = f"""
    INSERT INTO events ({_CONTRACT}, created_at, watch_id, seq, tier, first_seen_at)
    VALUES {{rows}} ON CONFLICT (event_id) DO NOTHING RETURNING id, event_id
"""


_NOT_DEAD_ELSEWHERE = "NOT EXISTS (SELECT 1 FROM dead_letter d WHERE d.event_id = events.event_id AND d.state = 'open')"


@dataclass(frozen=True)
class StoredEvent:
    """A row of `events`."""

    id: int
    event_id: str
    dedupe_key: str
    source: str
    event_type: str
    occurred_at: str
    received_at: str
    subject_json: str
    routing_json: str
    metadata_json: str
    raw_ref: str | None
    contract_version: str
    watch_id: int | None
    seq: int
    tier: str
    first_seen_at: float

    @property
    def is_ascii(self) -> bool:
        """Both canonical forms of JSON are the same bytes."""
        return (self.subject_json + self.routing_json + self.metadata_json).isascii()


COLUMNS = columns(StoredEvent, "e")


@dataclass(frozen=True)
class NewEvent:
    """An event to store. `seq` is its place among those of its watch."""

    event: CreatorSignalEvent
    watch_id: int | None
    seq: int
    tier: str
    first_seen_at: float


@dataclass(frozen=True)
class EmittedEvent:
    """An event, as far as a comparison with another poller needs it."""

    state: str
    first_seen_at: float


def add(event: CreatorSignalEvent, *, watch_id: int | None, seq: int, tier: str, first_seen_at: float) -> int | None:
    """Store one event. None: this event_id is stored already."""
    return add_many([NewEvent(event, watch_id, seq, tier, first_seen_at)]).get(event.event_id)


def add_many(new: Sequence[NewEvent]) -> dict[str, int]:
    """Store events. Returns their rows by event_id; one that is stored already has none."""
    found: dict[str, int] = {}
    for chunk in chunks(new, 50):
        values: list[Any] = []
        for one in chunk:
            it = one.event
            values += (it.event_id, it.dedupe_key, it.source, it.event_type, it.occurred_at, it.received_at)
            values += (_compact(it.subject), _compact(it.routing), _compact(it.metadata), it.raw_ref)
            values += (it.contract_version, clock.iso(one.first_seen_at))
            values += (one.watch_id, one.seq, one.tier, one.first_seen_at)
        rows = fetch(_INSERT.replace("{rows}", ", ".join([_ROW] * len(chunk))), *values)
        found |= {event_id: int(pk) for pk, event_id in rows}
    return found


def mark_removed(dedupe_key: str, at: float) -> StoredEvent | None:
    """The item of this key is deleted or private since then; the first time counts. None: no such event is stored."""
    run("UPDATE events SET removed_at = COALESCE(removed_at, ?) WHERE dedupe_key = ?", at, dedupe_key)
    sql = f"SELECT {COLUMNS} FROM events e WHERE e.dedupe_key = ? ORDER BY e.id LIMIT 1"
    return fetch_one(StoredEvent, sql, dedupe_key)


def is_stored(event_id: str) -> bool:
    return bool(fetch("SELECT 1 FROM events WHERE event_id = ?", event_id))


def as_contract(row: StoredEvent | Event, emitted_at: str | None) -> dict[str, Any]:
    """The event as it is sent. Only `emitted_at` differs from one attempt to the next."""
    return {
        "event_id": row.event_id,
        "dedupe_key": row.dedupe_key,
        "source": row.source,
        "event_type": row.event_type,
        "occurred_at": row.occurred_at,
        "received_at": row.received_at,
        "emitted_at": emitted_at,
        "subject": json.loads(row.subject_json),
        "routing": json.loads(row.routing_json),
        "metadata": json.loads(row.metadata_json),
        "raw_ref": row.raw_ref,
        "contract_version": row.contract_version,
    }


def mark(ids: Sequence[int], state: str, *was: str) -> None:
    """The state of these events follows what happened to them, unless they are further already."""
    for chunk in chunks(ids):
        sql = f"UPDATE events SET state = ? WHERE id IN ({marks(chunk)}) AND state IN ({marks(was)})"
        run(sql, state, *chunk, *was)


def mark_delivered(ids: Sequence[int], *, emitted_at: str, now: float) -> None:
    """Delivered means: to every destination that wanted it."""
    for chunk in chunks(ids):
        on_the_way_to_none = (
            f"WHERE id IN ({marks(chunk)}) AND state IN ('pending', 'in_flight') "
            "AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.event_pk = events.id)"
        )
        sql = "UPDATE events SET state = 'delivered', delivered = TRUE, delivered_at = ?, emitted_at = ?"
        arrived = changed(f"{sql} {on_the_way_to_none} AND {_NOT_DEAD_ELSEWHERE}", now, emitted_at, *chunk)
        if arrived < len(chunk):  # delivered here, but dead for another destination
            run(f"UPDATE events SET state = 'dead' {on_the_way_to_none}", *chunk)


def waiting(at_most: int) -> int:
    """Events that are not settled, counted no further than `at_most`."""
    sql = "SELECT COUNT(*) FROM (SELECT 1 FROM events WHERE state IN ('pending', 'in_flight') LIMIT ?) AS found"
    return number(sql, at_most)


def counts() -> dict[str, int]:
    return dict(fetch("SELECT state, COUNT(*) FROM events GROUP BY state"))


def newest(limit: int) -> list[Event]:
    return list(Event.select().order_by(Event.id.desc()).limit(limit))


def by_ids(ids: Sequence[int]) -> list[Event]:
    """Those that exist, in the order of the ids given."""
    found = {row.id: row for chunk in chunks(ids) for row in Event.select().where(Event.id.in_(chunk))}
    return [found[number] for number in ids if number in found]


def emitted(sources: Sequence[str], since: float) -> dict[str, EmittedEvent]:
    """Events of these sources that were first seen since then, by their dedupe key."""
    sql = f"SELECT dedupe_key, state, first_seen_at FROM events WHERE source IN ({marks(sources)})"
    rows = fetch(f"{sql} AND first_seen_at >= ? ORDER BY id", *sources, since)
    return {key: EmittedEvent(state, seen_at) for key, state, seen_at in rows}


def oldest_pending(collecting: Sequence[str] = ()) -> float | None:
    """When the longest-waiting undelivered event was first seen. One that only these destinations wait for, which
    collect events or have quiet hours, does not count."""
    sql = "SELECT MIN(first_seen_at) FROM events WHERE state IN ('pending', 'in_flight')"
    if collecting:
        sql += (
            " AND (NOT EXISTS (SELECT 1 FROM outbox o WHERE o.event_pk = events.id) OR EXISTS (SELECT 1 FROM outbox o "
            f"WHERE o.event_pk = events.id AND o.destination NOT IN ({marks(collecting)})))"
        )
    found: float | None = value(sql, *collecting)
    return found


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
