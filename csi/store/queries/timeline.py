"""Reading only: all rows that one item has left behind, for people who ask what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.store.db import fetch, is_postgres, marks

MOST_KEYS = 20
PLACES = (("dedupe_key", "events"), ("key", "dedupe_keys"), ("item_key", "inbox"), ("item_key", "dead_letter"))
"""Where an item's key stands. Dead letters also know items whose other rows are gone."""

UNNAMED = "malformed"
"""How the key of an item begins in which no id could be read."""


@dataclass(frozen=True)
class KnownKey:
    """Why an item is known."""

    key: str
    reason: str
    first_seen_at: float | None
    expires_at: str


@dataclass(frozen=True)
class WaitingItem:
    """An item that is not an event yet."""

    id: int
    key: str
    watch_id: int
    state: str
    claims: int
    event_type: str
    occurred_at: str
    seen_at: float


@dataclass(frozen=True)
class ToldEvent:
    """An event, as far as its story goes."""

    pk: int
    event_id: str
    key: str
    source: str
    event_type: str
    occurred_at: str
    subject_json: str
    state: str
    tier: str
    watch_id: int | None
    first_seen_at: float
    delivered_at: float | None


@dataclass(frozen=True)
class OnItsWay:
    """An event's place in the outbox of one destination."""

    event_pk: int
    destination: str
    lane: str
    watch_id: int | None
    seq: int
    state: str
    due_at: float
    batch_pk: int | None


@dataclass(frozen=True)
class Journey:
    """A batch that an event travelled in."""

    pk: int
    event_pk: int
    batch_id: str
    destination: str
    lane: str
    size: int
    is_probe: bool
    state: str
    attempts: int
    next_attempt_at: float
    created_at: float
    settled_at: float | None


@dataclass(frozen=True)
class Request:
    """One attempt, and its answer."""

    batch_pk: int
    destination: str
    request_id: str
    attempt: int
    form: str
    started_at: float
    finished_at: float | None
    outcome: str
    status: int | None
    reason: str | None
    answer: str | None


@dataclass(frozen=True)
class Watched:
    """Where an item was seen."""

    id: int
    source: str
    ref: str
    name: str | None


def find_keys(text: str, stems: Sequence[str] = ()) -> list[str]:
    """Keys of items that this is the key, the event_id or the item's own id of: first what fits exactly.

    An item's id stands in its key after one of the stems. Every look is one through an index, also among millions.
    """
    exact = [
        "SELECT dedupe_key FROM events WHERE event_id = ? OR dedupe_key = ?",
        "SELECT key FROM dedupe_keys WHERE key = ? OR key = ?",
        "SELECT item_key FROM inbox WHERE item_key = ? OR item_key = ?",
        "SELECT item_key FROM dead_letter WHERE event_id = ? OR item_key = ?",
    ]
    found = dict.fromkeys(row[0] for sql in exact for row in fetch(sql, text, text))
    for stem in stems if not found else ():
        found |= dict.fromkeys(key for column, table in PLACES for key in _keys_of(column, table, stem + text))
    return list(found) or _unnamed_with(text)


def _unnamed_with(text: str) -> list[str]:
    """Items in whose payload no id could be read have a made-up key: these few are searched for the very value."""
    like = f'%"{text.replace("!", "!!").replace("%", "!%").replace("_", "!_")}"%'
    where = f"{_between('item_key')} AND event_json LIKE ? ESCAPE '!' ORDER BY id LIMIT ?"
    sql = f"SELECT item_key, event_json FROM dead_letter WHERE {where}"
    rows = fetch(sql, f"{UNNAMED}:", f"{UNNAMED};", like, MOST_KEYS + 1)
    # SQLite's LIKE takes A for a; the ids of videos do not.
    return [key for key, payload in rows if f'"{text}"' in payload]


def _keys_of(column: str, table: str, start: str) -> list[str]:
    """The key that is `start`, and those that go on after a colon."""
    rows = fetch(under_sql(column, table), f"{start}:", f"{start};", MOST_KEYS + 1)  # in ASCII ; comes after :
    whole = fetch(f"SELECT {column} FROM {table} WHERE {column} = ?", start)
    return list(dict.fromkeys(row[0] for row in [*whole, *rows]))


def under_sql(column: str, table: str) -> str:
    """Keys from one text up to another, in the order of their bytes."""
    order = f"{column} USING ~<~" if is_postgres() else column
    return f"SELECT DISTINCT {column} FROM {table} WHERE {_between(column)} ORDER BY {order} LIMIT ?"


def _between(column: str) -> str:
    """Byte by byte: on PostgreSQL whatever its collation, by an index of its own."""
    above, below = ("~>=~", "~<~") if is_postgres() else (">=", "<")
    return f"{column} {above} ? AND {column} {below} ?"


def known_key(key: str) -> KnownKey | None:
    found = fetch("SELECT key, reason, first_seen_at, expires_at FROM dedupe_keys WHERE key = ?", key)
    return KnownKey(*found[0]) if found else None


def waiting_item(key: str) -> WaitingItem | None:
    sql = "SELECT id, item_key, watch_id, state, claims, event_type, occurred_at, seen_at FROM inbox WHERE item_key = ?"
    found = fetch(sql, key)
    return WaitingItem(*found[0]) if found else None


def events_of(key: str) -> list[ToldEvent]:
    sql = (
        "SELECT id, event_id, dedupe_key, source, event_type, occurred_at, subject_json, state, tier, watch_id, "
        "first_seen_at, delivered_at FROM events WHERE dedupe_key = ? ORDER BY id"
    )
    return [ToldEvent(*row) for row in fetch(sql, key)]


def outbox_of(event_pks: Sequence[int]) -> list[OnItsWay]:
    if not event_pks:
        return []
    sql = "SELECT event_pk, destination, tier, watch_id, seq, state, due_at, batch_id FROM outbox WHERE event_pk IN"
    return [OnItsWay(*row) for row in fetch(f"{sql} ({marks(event_pks)}) ORDER BY destination", *event_pks)]


def journeys_of(event_pks: Sequence[int]) -> list[Journey]:
    if not event_pks:
        return []
    sql = (
        "SELECT b.id, be.event_pk, b.batch_id, b.destination, b.tier, b.size, b.probe, b.state, b.attempts, "
        "b.next_attempt_at, b.created_at, b.settled_at FROM batch_events be JOIN batches b ON b.id = be.batch_id "
        f"WHERE be.event_pk IN ({marks(event_pks)}) ORDER BY b.id"
    )
    return [Journey(*row) for row in fetch(sql, *event_pks)]


def requests_of(batch_pks: Sequence[int]) -> list[Request]:
    if not batch_pks:
        return []
    sql = (
        "SELECT batch_id, destination, request_id, attempt, form, started_at, finished_at, outcome, status, reason, "
        f"answer FROM delivery_attempts WHERE batch_id IN ({marks(batch_pks)}) ORDER BY id"
    )
    return [Request(*row) for row in fetch(sql, *batch_pks)]


def requests_for(event_id: str, destination: str) -> list[Request]:
    """All attempts to bring this event to this destination, oldest first. None are left once its row is gone."""
    pks = [row[0] for row in fetch("SELECT id FROM events WHERE event_id = ?", event_id)]
    batches = [journey.pk for journey in journeys_of(pks) if journey.destination == destination]
    return requests_of(batches)


def watched(watch_id: int | None) -> Watched | None:
    if watch_id is None:
        return None
    found = fetch("SELECT id, source, ref, name FROM watches WHERE id = ?", watch_id)
    return Watched(*found[0]) if found else None


def earlier_one(entry: OnItsWay) -> str | None:
    """What this entry waits for to keep the order of its watch: the key of an item, or an event_id."""
    item = fetch(
        "SELECT item_key FROM inbox WHERE state = 'new' AND watch_id = ? AND id < ? ORDER BY id LIMIT 1",
        entry.watch_id,
        entry.seq,
    )
    if item:
        return str(item[0][0])
    event = fetch(
        "SELECT e.event_id FROM outbox a JOIN batches b ON b.id = a.batch_id JOIN events e ON e.id = a.event_pk "
        "WHERE a.state = 'in_flight' AND a.watch_id = ? AND a.seq < ? AND a.destination = ? AND a.tier = ? "
        "AND b.attempts = 0 ORDER BY a.seq LIMIT 1",
        entry.watch_id,
        entry.seq,
        entry.destination,
        entry.lane,
    )
    return str(event[0][0]) if event else None


@dataclass(frozen=True)
class Lane:
    """What waits and travels in one lane to one destination."""

    name: str
    pending: int
    in_flight: int
    oldest_seen_at: float | None
    next_due_at: float | None


def lanes(destination: str) -> list[Lane]:
    """Those in which something waits or travels."""
    sql = (
        "SELECT o.tier, SUM(CASE WHEN o.state = 'pending' THEN 1 ELSE 0 END), "
        "SUM(CASE WHEN o.state = 'in_flight' THEN 1 ELSE 0 END), MIN(e.first_seen_at), MIN(o.due_at) "
        "FROM outbox o JOIN events e ON e.id = o.event_pk WHERE o.destination = ? GROUP BY o.tier ORDER BY o.tier"
    )
    return [Lane(name, int(wait), int(fly), seen, due) for name, wait, fly, seen, due in fetch(sql, destination)]


def all_destinations() -> list[str]:
    """Every name that anything is known of, configured or not."""
    sql = "SELECT destination FROM endpoints UNION SELECT destination FROM outbox ORDER BY 1"
    return [row[0] for row in fetch(sql)]
