"""What a running demo shows: the ledgers as they grow and the rows as they move. Reads only."""

import json
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csi.demo.reconciliation import EventRecord, LedgerContents, percentile
from csi.dlq import dead_letters
from csi.store import db, events, inbox, watches
from csi.store.models import DeadLetter, Event, Watch

SHOWN = 12
TAKEN = ("accepted", "duplicate")
LATE_COMMIT = 10.0
"""A row may become visible this much later than its `delivered_at` says."""


@dataclass(frozen=True)
class EventLine:
    """One event for people's eyes. `at` is when it was delivered, or first seen; latency None until delivered."""

    at: float
    source: str
    title: str
    state: str
    latency_ms: float | None


@dataclass(frozen=True)
class ProgressSnapshot:
    """One moment of the demo."""

    served: int = 0
    stored: int = 0
    delivered: int = 0
    pending: int = 0
    dead: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    fresh: tuple[EventLine, ...] = ()
    """Delivered since the look before."""
    recent: tuple[EventLine, ...] = ()
    """The newest events, whatever their state, newest first."""


class LedgerTail:
    """A ledger that somebody else appends to. Half a line waits until it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """What was added since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._place)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._place += len(line)
                yield json.loads(line)


class ProgressReader:
    """Looks at ledgers and database again and again, and remembers what it has shown."""

    def __init__(self, served: Path, received: Path) -> None:
        self._served_tail, self._received_tail = LedgerTail(served), LedgerTail(received)
        self._served: set[str] = set()
        self._received: list[str] = []
        self._told: set[int] = set()
        self._latencies: list[float] = []
        self._newest = 0.0

    def look(self) -> ProgressSnapshot:
        self._follow_served()
        with db.reading():
            fresh = tuple(self._newly_delivered())
            states = events.counts()
            return ProgressSnapshot(
                served=len(self._served),
                stored=sum(states.values()),
                delivered=states.get("delivered", 0),
                pending=states.get("pending", 0) + states.get("in_flight", 0) + inbox.waiting_count(),
                dead=dead_letters.open_count(),
                p50_ms=percentile(self._latencies, 50),
                p95_ms=percentile(self._latencies, 95),
                fresh=fresh,
                recent=tuple(_seen(row) for row in events.page(SHOWN)),
            )

    def books(self) -> LedgerContents:
        """The whole account as of now."""
        with db.reading():
            stored = tuple(_stored(row) for row in Event.select())
            dead = tuple(letter.event_id for letter in DeadLetter.select().where(DeadLetter.state == "open"))
            waiting = inbox.waiting_count()
        self._follow_served()
        self._follow_received()
        return LedgerContents(frozenset(self._served), stored, tuple(self._received), dead, waiting)

    def read_since(self, moment: float) -> set[int]:
        """The watches whose last poll began after `moment` and went well."""
        with db.reading():
            return {watch.id for watch in watches.active() if _was_read(watch, moment)}

    def _follow_served(self) -> None:
        self._served.update(line["key"] for line in self._served_tail.lines())

    def _follow_received(self) -> None:
        lines = (line for line in self._received_tail.lines() if line["verdict"] in TAKEN)
        self._received += [line["event_id"] for line in lines]

    def _newly_delivered(self) -> Iterator[EventLine]:
        late = (Event.state == "delivered") & (Event.delivered_at > self._newest - LATE_COMMIT)
        for row in Event.select().where(late).order_by(Event.delivered_at, Event.seq):
            seen = _seen(row)
            if row.id not in self._told and seen.latency_ms is not None:
                self._told.add(row.id)
                self._newest = max(self._newest, seen.at)
                insort(self._latencies, seen.latency_ms)
                yield seen


def _seen(row: Event) -> EventLine:
    arrived = row.delivered_at if row.state == "delivered" else None
    return EventLine(
        at=row.first_seen_at if arrived is None else arrived,
        source=row.source,
        title=str(json.loads(row.subject_json).get("title", "")),
        state=row.state,
        latency_ms=None if arrived is None else 1000 * (arrived - row.first_seen_at),
    )


def _stored(row: Event) -> EventRecord:
    return EventRecord(row.event_id, row.dedupe_key, row.state, row.first_seen_at, row.delivered_at)


def _was_read(watch: Watch, moment: float) -> bool:
    begun, done = watch.last_poll_at, watch.last_success_at
    return begun is not None and done is not None and moment < begun <= done
