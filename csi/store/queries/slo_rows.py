"""The events of a window of time, and the attempts that carried them, for the objectives. Reads only."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from csi import clock
from csi.config.delivery_settings import RESEND
from csi.store.db import fetch, marks, number, value

CHUNK = 2_000
DUPLICATE = "duplicate_event"
"""The receiver's word for an event that it had already (PRD §8.1)."""

# Without an answer, or with one from a proxy, it is not known whether the receiver stored the batch.
_UNSURE = """
    (a.outcome = 'interrupted' OR a.status IN (502, 504)
     OR (a.outcome = 'transient' AND a.status IS NULL
         AND SUBSTR(COALESCE(a.reason, ''), 1, 7) <> 'connect' AND SUBSTR(COALESCE(a.reason, ''), 1, 4) <> 'busy'))
"""
# The destinations are named because the index on the time of an attempt begins with its destination.
_SINCE = (
    "a.destination IN (SELECT destination FROM destinations UNION SELECT destination FROM outbox) AND a.started_at >= ?"
)
_RESENT = f"b.tier = '{RESEND}'"
_ACCEPTED = f"{_SINCE} AND a.outcome IN ('delivered', 'partial') AND NOT {_RESENT}"

# An event that the receiver refused became a dead letter in the transaction that finished the attempt.
REFUSED = """
    SELECT COUNT(*) FROM batch_events be JOIN events e ON e.id = be.event_pk
    JOIN dead_letter d ON d.event_id = e.event_id
    WHERE be.batch_id = a.batch_id AND d.destination = a.destination AND d.died_at = a.finished_at
"""


class EventTimes(NamedTuple):
    """What became of one event and when, and whether its watch had been polled before the event happened.

    A tuple, because a window has as many as there are events: a frozen dataclass takes three times as long to build.
    """

    id: int
    tier: str
    state: str
    occurred_at: float
    first_seen_at: float
    delivered_at: float | None
    """When the last destination accepted it, without those that collect events."""
    first_read_at: float | None
    is_collected: bool = False
    """No destination but those that collect events gets it, or they alone still wait for it."""


@dataclass(frozen=True)
class SendCounts:
    """Events that receivers accepted, and those that a receiver may have got more than once."""

    sent: int
    reported: int
    """The receiver answered that it had them already."""
    possible: int
    """Sent again after an attempt without an answer."""
    resent: int = 0
    """Sent again by an operator, and accepted. The other numbers do not contain them: such a duplicate is wanted."""


def event_times(since: float, collecting: Sequence[str] = ()) -> Iterator[EventTimes]:
    """Events first seen since then, newest first. Ids grow with time, so no index on the time is needed.

    Events wait at the `collecting` destinations by design: their time there is no latency.
    """
    sql = (
        "SELECT e.id, e.tier, e.state, e.occurred_at, e.first_seen_at, e.delivered_at, w.first_read_at "
        "FROM events e LEFT JOIN watches w ON w.id = e.watch_id WHERE e.id < ? ORDER BY e.id DESC LIMIT ?"
    )
    before, found = 2**62, True
    while found:
        rows = fetch(sql, before, CHUNK)
        found = False
        collected = _collected(collecting, rows[-1][0], rows[0][0]) if collecting and rows else {}
        for pk, tier, state, occurred_at, seen_at, delivered_at, first_read_at in rows:
            if seen_at >= since:
                found = True
                end = collected.get(pk, delivered_at)
                times = clock.parse(occurred_at), seen_at, end, first_read_at
                yield EventTimes(pk, tier, state, *times, pk in collected)
        before = rows[-1][0] if rows else 0


def _collected(collecting: Sequence[str], first: int, last: int) -> dict[int, float | None]:
    """Of the events with these ids those that collecting destinations got, or alone still wait for: when the last
    other destination accepted them, None where there was no other."""
    names = marks(collecting)
    taken = (
        f"SELECT be.event_pk, MAX(CASE WHEN b.destination NOT IN ({names}) THEN a.finished_at END), "
        f"MAX(CASE WHEN b.destination IN ({names}) THEN 1 ELSE 0 END) FROM batch_events be "
        "JOIN batches b ON b.id = be.batch_id JOIN delivery_attempts a ON a.batch_id = b.id WHERE be.event_pk "
        f"BETWEEN ? AND ? AND a.outcome IN ('delivered', 'partial') AND NOT {_RESENT} GROUP BY be.event_pk"
    )
    sent = {pk: (at, bool(was)) for pk, at, was in fetch(taken, *collecting, *collecting, first, last)}
    queued = f"SELECT event_pk, MIN(CASE WHEN destination IN ({names}) THEN 1 ELSE 0 END) FROM outbox"
    waiting = dict(fetch(f"{queued} WHERE event_pk BETWEEN ? AND ? GROUP BY event_pk", *collecting, first, last))
    ours = {pk for pk, (_, was_collected) in sent.items() if was_collected} | waiting.keys()
    return {pk: sent.get(pk, (None, False))[0] for pk in ours if waiting.get(pk, 1)}


def oldest_event() -> float | None:
    """When the oldest event that is still stored was first seen."""
    found: float | None = value("SELECT first_seen_at FROM events ORDER BY id LIMIT 1")
    return found


def send_counts(since: float, unread: Sequence[str] = ()) -> SendCounts:
    """Of attempts begun since then, to all destinations, in events: one that a 207 refused was not accepted.

    Of the `unread` destinations the status alone counts: their bodies are not in CSI's words.
    """
    sql = "SELECT COALESCE(SUM(b.size), 0) FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id"
    attempted = number(f"{sql} WHERE {_ACCEPTED}", since)
    again = (
        f"SELECT COALESCE(SUM(b.size - ({REFUSED})), 0) FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id"
    )
    resent = number(f"{again} WHERE {_SINCE} AND a.outcome IN ('delivered', 'partial') AND {_RESENT}", since)
    refused, reported = 0, 0
    sql = (
        f"SELECT a.destination, a.status, b.size, a.answer, ({REFUSED}) FROM delivery_attempts a "
        "JOIN batches b ON b.id = a.batch_id "
        f"WHERE {_ACCEPTED} AND (a.status IN (207, 409) OR a.answer LIKE ? OR a.answer LIKE ?)"
    )
    for name, status, size, answer, dead in fetch(sql, since, f"%{DUPLICATE}%", '%"index"%'):
        refused += dead
        if status == 409:
            reported += size
        elif name not in unread:
            # Only the beginning of a long answer is stored: its `rejected` counts more than the errors that are left.
            rejected = re.search(r'"rejected":\s*(\d{1,6})', answer or "")
            reported += max((answer or "").count(DUPLICATE), int(rejected[1]) - dead if rejected else 0)
    possible = (
        "SELECT COUNT(DISTINCT be.event_pk) FROM delivery_attempts a JOIN batch_events be ON be.batch_id = a.batch_id "
        f"JOIN batches b ON b.id = a.batch_id WHERE {_SINCE} AND {_UNSURE} AND NOT {_RESENT} AND EXISTS ("
        "SELECT 1 FROM batch_events again JOIN delivery_attempts later ON later.batch_id = again.batch_id "
        "JOIN batches b ON b.id = again.batch_id WHERE again.event_pk = be.event_pk AND later.id > a.id "
        f"AND later.outcome IN ('delivered', 'partial') AND NOT {_RESENT})"
    )
    return SendCounts(attempted - refused, reported, number(possible, since), resent)
