"""Read the progress of a running demo from its ledgers and its database."""

import json
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csi.demo.reconciliation import EventRecord, LedgerContents, percentile
from csi.dlq import dead_letters
from csi.store import db, events, inbox, watches
from csi.store.models import Event

SHOWN = 12
TAKEN = ("accepted", "duplicate")
LATE_COMMIT = 10.0
"""A row may become visible this many seconds after its `delivered_at`."""


@dataclass(frozen=True)
class EventLine:
    """One event to display. `at` is when it was delivered, or first seen; `latency_ms` is None until delivery."""

    at: float
    source: str
    title: str
    state: str
    latency_ms: float | None


@dataclass(frozen=True)
class ProgressSnapshot:
    """The demo at one moment."""

    served: int = 0
    stored: int = 0
    delivered: int = 0
    pending: int = 0
    dead: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    fresh: tuple[EventLine, ...] = ()
    """Delivered since the previous snapshot."""
    recent: tuple[EventLine, ...] = ()
    """The newest events in any state, newest first."""


class LedgerTail:
    """Reads what another process appends to a ledger. An incomplete last line is read when it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """What was added since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield json.loads(line)


class ProgressReader:
    """Reads ledgers and database repeatedly, and remembers which deliveries it has returned."""

    def __init__(self, served: Path, received: Path) -> None:
        self._served_tail, self._received_tail = LedgerTail(served), LedgerTail(received)
        self._served: set[str] = set()
        self._received: list[str] = []
        self._returned: set[int] = set()
        self._latencies: list[float] = []
        self._newest = 0.0

    def snapshot(self) -> ProgressSnapshot:
        self._read_served()
        with db.reading():
            fresh = []
            late = (Event.state == "delivered") & (Event.delivered_at > self._newest - LATE_COMMIT)
            for row in Event.select().where(late).order_by(Event.delivered_at, Event.seq):
                line = _event_line(row)
                if row.id not in self._returned and line.latency_ms is not None:
                    self._returned.add(row.id)
                    self._newest = max(self._newest, line.at)
                    insort(self._latencies, line.latency_ms)
                    fresh.append(line)
            states = events.counts()
            return ProgressSnapshot(
                served=len(self._served),
                stored=sum(states.values()),
                delivered=states.get("delivered", 0),
                pending=states.get("pending", 0) + states.get("in_flight", 0) + inbox.waiting_count(),
                dead=dead_letters.open_count(),
                p50_ms=percentile(self._latencies, 50),
                p95_ms=percentile(self._latencies, 95),
                fresh=tuple(fresh),
                recent=tuple(_event_line(row) for row in events.newest(SHOWN)),
            )

    def contents(self) -> LedgerContents:
        """Both ledgers and the database in full, as of now."""
        with db.reading():
            stored = tuple(
                EventRecord(row.event_id, row.dedupe_key, row.state, row.first_seen_at, row.delivered_at)
                for row in Event.select()
            )
            dead = tuple(db.column("SELECT event_id FROM dead_letter WHERE state = 'open'"))
            waiting = inbox.waiting_count()
        self._read_served()
        self._received += [line["event_id"] for line in self._received_tail.lines() if line["verdict"] in TAKEN]
        return LedgerContents(frozenset(self._served), stored, tuple(self._received), dead, waiting)

    def polled_since(self, moment: float) -> set[int]:
        """The watches whose last poll began after `moment` and succeeded."""
        with db.reading():
            times = [(watch.id, watch.last_poll_at, watch.last_success_at) for watch in watches.active()]
        return {ref for ref, begun, done in times if begun is not None and done is not None and moment < begun <= done}

    def _read_served(self) -> None:
        self._served.update(line["key"] for line in self._served_tail.lines())


def _event_line(row: Event) -> EventLine:
    delivered_at = row.delivered_at if row.state == "delivered" else None
    return EventLine(
        at=row.first_seen_at if delivered_at is None else delivered_at,
        source=row.source,
        title=str(json.loads(row.subject_json).get("title", "")),
        state=row.state,
        latency_ms=None if delivered_at is None else 1000 * (delivered_at - row.first_seen_at),
    )
