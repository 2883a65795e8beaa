"""The oracle: four ledgers, the invariants of docs/faults.md, and one line of numbers for each case."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from csi.demo.reconciliation import DeliverySummary, EventRecord, LedgerContents, percentile, summarize

STATES = ("pending", "in_flight", "delivered", "dead", "quarantined")
WAITING = ("pending", "in_flight")
GAPS = ((16.0, 24.0), (48.0, 72.0))
"""What I5 allows between the attempts of one batch: 20 and 60 s, ± 20 %."""
USED = ("transient", "delivered", "refused", "endpoint_fault")
"""Outcomes of requests that used up an attempt, or ended the batch."""

Rows = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Taken:
    """U: one event that the receiver took, once for every time it did."""

    event_id: str
    at: float
    batch_id: str
    request_id: str
    body: str
    """Fingerprint of the event but for `emitted_at`."""
    answered: bool = True
    """The answer left the receiver whole."""


@dataclass(frozen=True)
class Event:
    """A: one committed event."""

    event_id: str
    key: str
    state: str
    watch_id: int | None
    tier: str
    occurred_at: str
    first_seen_at: float
    delivered_at: float | None


@dataclass(frozen=True)
class Attempt:
    """One request as the database remembers it."""

    batch_id: int | None
    number: int
    started_at: float
    finished_at: float | None
    outcome: str
    status: int | None


@dataclass(frozen=True)
class Ledgers:
    """S, A, U and N, and what the database says of the rest."""

    served: frozenset[str] = frozenset()
    events: tuple[Event, ...] = ()
    taken: tuple[Taken, ...] = ()
    contacted: int = 0
    """N: connections to an address that must never be contacted."""
    dead: tuple[str, ...] = ()
    inbox: int = 0
    outbox: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True)
class Account:
    """The invariants as numbers. All but `extra`, `attempts` and `gaps` are 0 in every case."""

    summary: DeliverySummary
    mismatch: int
    """I2: events in no known state, or whose state and outbox disagree."""
    changed: int
    """I3: events whose body differed between two attempts."""
    unanswered: int
    """Events taken in requests whose answer was lost on the wire: I4's share of the receiver's side."""
    attempts: int
    gaps: tuple[float, ...]
    wrong_gaps: int
    disorder: int
    """I6: first deliveries of one watch out of order, where nothing was retried."""
    failed: int
    """Requests that did not end in a delivery."""
    contacted: int
    latencies: tuple[float, ...] = field(default=(), repr=False)

    @property
    def lost(self) -> int:
        return self.summary.lost

    @property
    def extra(self) -> int:
        return self.summary.extra

    @property
    def unexpected(self) -> int:
        return self.summary.unexpected

    def seconds(self, percent: float) -> float:
        """First seen → accepted, at this percentile."""
        return (percentile(self.latencies, percent) or 0.0) / 1000


@dataclass(frozen=True)
class Bounds:
    """What a case allows. I4's bound is this and what the wire lost."""

    in_flight_at_crashes: int = 0
    pending: int = 0
    ordered: bool = False
    """Order is judged although requests failed."""
    changed: int = 0
    """Events that were read anew, so that they carry another `received_at`: only after an old copy was restored."""
    timed: bool = True
    """The gaps between attempts are judged: not where the case itself moves the clock."""
    attempts: int = 3


def judge(books: Ledgers) -> Account:
    """Hold the ledgers against each other. Pure."""
    taken = _first_deliveries(books.taken)
    attempts = _attempts_by_batch(books.attempts)
    longest = max(attempts.values(), key=len, default=[])
    return Account(
        summary=_summary(books),
        mismatch=_mismatch(books),
        changed=_changed(books.taken),
        unanswered=sum(not one.answered for one in books.taken),
        attempts=len(longest),
        gaps=(0.0, *_gaps(longest)),
        wrong_gaps=sum(_wrong_gaps(found) for found in attempts.values()),
        disorder=_disorder(books.events, taken),
        failed=sum(attempt.outcome != "delivered" for attempt in books.attempts),
        contacted=books.contacted,
        latencies=_latencies(books.events),
    )


def violations(account: Account, bounds: Bounds) -> list[str]:
    """Every invariant that does not hold, by its number."""
    allowed = bounds.in_flight_at_crashes + account.unanswered
    checks = {
        "I1 lost": account.lost > bounds.pending,
        "I2 pending": account.summary.pending > bounds.pending,
        "I2 states": account.mismatch > 0,
        "I3 unexpected": account.unexpected > 0,
        "I3 changed": account.changed > bounds.changed,
        "I4 extra": account.extra > allowed,
        "I5 attempts": account.attempts > bounds.attempts,
        "I5 gaps": account.wrong_gaps > 0 and bounds.timed,
        "I6 order": account.disorder > 0 and (bounds.ordered or not account.failed),
        "I7 contacted": account.contacted > 0,
    }
    return [name for name, broken in checks.items() if broken]


def line(account: Account, bounds: Bounds, **more: Any) -> str:
    """`lost=0 extra=2<=4 unexpected=0 attempts=3 gaps=0/19.4/61.2 …`"""
    allowed = bounds.in_flight_at_crashes + account.unanswered
    numbers: dict[str, Any] = {
        "served": account.summary.served,
        "lost": account.lost,
        "extra": f"{account.extra}<={allowed}",
        "unexpected": account.unexpected,
        "changed": account.changed,
        "pending": account.summary.pending,
        "dead": account.summary.dead,
        "attempts": account.attempts,
        "gaps": "/".join(f"{gap:.3g}" for gap in account.gaps),
    }
    return " ".join(f"{name}={_short(value)}" for name, value in (numbers | more).items())


def read_books(rows: Rows, *, served: Iterable[str], taken: Iterable[Taken], contacted: int = 0) -> Ledgers:
    """A from the database, beside the ledgers of the others."""
    events = rows(
        "SELECT event_id, dedupe_key, state, watch_id, tier, occurred_at, first_seen_at, delivered_at FROM events"
    )
    waiting = rows("SELECT e.event_id FROM outbox o JOIN events e ON e.id = o.event_pk")
    attempts = rows(
        "SELECT batch_id, attempt, started_at, finished_at, outcome, status FROM delivery_attempts ORDER BY id"
    )
    dead = rows("SELECT event_id FROM dead_letter WHERE state = 'open'")
    inbox = rows("SELECT COUNT(*) FROM inbox WHERE state = 'new'")
    return Ledgers(
        served=frozenset(served),
        events=tuple(Event(*row) for row in events),
        taken=tuple(taken),
        contacted=contacted,
        dead=tuple(_served_key(row[0]) for row in dead),
        inbox=int(inbox[0][0]) if inbox else 0,
        outbox=tuple(row[0] for row in waiting),
        attempts=tuple(Attempt(*row) for row in attempts),
    )


def _served_key(dead: str) -> str:
    """An item that could not be read has a key of its own (`youtube:malformed:…`); it was served under the video's."""
    if not dead.startswith("youtube:malformed:"):
        return dead
    _, _, video, watched = dead.split(":", 3)
    return f"youtube:video:{video}" + (f":{watched}" if watched.startswith("PL") else "")


def fingerprint(event: dict[str, Any]) -> str:
    """An event but for `emitted_at`, the one field that may differ between attempts."""
    same = {name: value for name, value in event.items() if name != "emitted_at"}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:16]


def _summary(books: Ledgers) -> DeliverySummary:
    stored = [EventRecord(e.event_id, e.key, e.state, e.first_seen_at, e.delivered_at) for e in books.events]
    return summarize(
        LedgerContents(
            served=books.served,
            events=tuple(stored),
            received=tuple(one.event_id for one in books.taken),
            dead=books.dead,
            inbox=books.inbox,
        )
    )


def _mismatch(books: Ledgers) -> int:
    waiting = {event.event_id for event in books.events if event.state in WAITING}
    unknown = sum(event.state not in STATES for event in books.events)
    return unknown + len(waiting ^ set(books.outbox))


def _changed(taken: Sequence[Taken]) -> int:
    bodies: dict[str, set[str]] = defaultdict(set)
    for one in taken:
        bodies[one.event_id].add(one.body)
    return sum(len(found) > 1 for found in bodies.values())


def _first_deliveries(taken: Sequence[Taken]) -> dict[str, int]:
    """Each event's place in the order of arrival."""
    places: dict[str, int] = {}
    for place, one in enumerate(taken):
        places.setdefault(one.event_id, place)
    return places


def _attempts_by_batch(attempts: Sequence[Attempt]) -> dict[int, list[Attempt]]:
    """The requests of each batch that used up an attempt; those of an empty probe have no batch."""
    found: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.batch_id is not None and attempt.outcome in USED:
            found[attempt.batch_id].append(attempt)
    return found


def _gaps(attempts: Sequence[Attempt]) -> list[float]:
    return [after.started_at - (before.finished_at or before.started_at) for before, after in pairwise(attempts)]


def _wrong_gaps(attempts: Sequence[Attempt]) -> int:
    """Only gaps between two attempts in a row: a pause that the receiver asked for uses up none, and is longer."""
    wrong = 0
    for before, after in pairwise(attempts):
        if before.outcome == "transient" and after.number == before.number + 1:
            low, high = GAPS[min(before.number, len(GAPS)) - 1]
            wrong += not low <= after.started_at - (before.finished_at or before.started_at) <= high
    return wrong


def _disorder(events: Sequence[Event], places: dict[str, int]) -> int:
    watches: dict[tuple[int | None, str], list[Event]] = defaultdict(list)
    for event in events:
        if event.event_id in places and event.tier != "high_volume":
            watches[event.watch_id, event.tier].append(event)
    return sum(_inversions(found, places) for found in watches.values())


def _inversions(events: Sequence[Event], places: dict[str, int]) -> int:
    arrived = sorted(events, key=lambda event: places[event.event_id])
    return sum(before.occurred_at > after.occurred_at for before, after in pairwise(arrived))


def _latencies(events: Sequence[Event]) -> tuple[float, ...]:
    times = [e.delivered_at - e.first_seen_at for e in events if e.state == "delivered" and e.delivered_at is not None]
    return tuple(sorted(1000 * one for one in times))


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def counted(values: Iterable[Any]) -> str:
    """`200:4 503:2`, for a line."""
    return ",".join(f"{value}:{number}" for value, number in sorted(Counter(values).items()))
