"""All rows of one item, and what is queued for each destination. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass

from csi.config.delivery_settings import RESEND
from csi.store.db import chunks, column, columns, fetch, fetch_all, fetch_one, is_postgres, marks, value

MOST_KEYS = 20
PLACES = (("dedupe_key", "events"), ("key", "dedupe_keys"), ("item_key", "inbox"), ("item_key", "dead_letter"))
"""Tables and columns that hold an item's key. Dead letters also know items whose other rows are gone."""

UNNAMED = "malformed"
"""The beginning of the key of an item without a readable id."""


@dataclass(frozen=True)
class KnownKey:
    """Why an item is known."""

    key: str
    reason: str
    first_seen_at: float | None
    expires_at: str


@dataclass(frozen=True)
class InboxRow:
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
class EventHistoryRow:
    """An event, as far as its timeline needs it."""

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
    removed_at: float | None


@dataclass(frozen=True)
class OutboxRow:
    """An event that is queued for one destination."""

    event_pk: int
    destination: str
    lane: str
    watch_id: int | None
    seq: int
    state: str
    due_at: float
    batch_pk: int | None


@dataclass(frozen=True)
class BatchRow:
    """A batch that an event was part of."""

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
class AttemptRow:
    """One attempt to send a batch, as one event of that batch saw it."""

    batch_pk: int
    destination: str
    request_id: str
    attempt: int
    form: str
    started_at: float
    finished_at: float | None
    sent: str
    """What became of the request as a whole, as it is stored."""
    status: int | None
    reason: str | None
    answer: str | None
    refusal: str | None
    """Why the receiver refused this event; it may have accepted others of the same batch."""

    @property
    def outcome(self) -> str:
        """For this event: an accepted batch may have refused it."""
        is_refused = self.refusal is not None and self.sent in ("delivered", "partial")
        return "refused" if is_refused else "delivered" if self.sent == "partial" else self.sent

    @property
    def reason_for_event(self) -> str | None:
        return self.refusal if self.outcome == "refused" and self.refusal else self.reason

    @property
    def batch_outcome(self) -> str:
        return "partial" if self.sent == "delivered" and self.status == 207 else self.sent


@dataclass(frozen=True)
class WatchName:
    """The watch that saw an item."""

    id: int
    source: str
    ref: str
    name: str | None


def find_keys(text: str, stems: Sequence[str] = ()) -> list[str]:
    """Keys of the items whose key, event_id or own id this text is; exact matches first.

    An item's id stands in its key after one of the stems. Every query uses an index.
    """
    exact = [
        "SELECT dedupe_key FROM events WHERE event_id = ? OR dedupe_key = ?",
        "SELECT key FROM dedupe_keys WHERE key = ? OR key = ?",
        "SELECT item_key FROM inbox WHERE item_key = ? OR item_key = ?",
        "SELECT item_key FROM dead_letter WHERE event_id = ? OR item_key = ?",
    ]
    found = dict.fromkeys(row[0] for sql in exact for row in fetch(sql, text, text))
    for start in [stem + text for stem in stems] if not found else ():
        for name, table in PLACES:
            # The key that equals `start`, and those that continue after a colon; in ASCII ; comes after :
            whole = fetch(f"SELECT {name} FROM {table} WHERE {name} = ?", start)
            longer = fetch(under_sql(name, table), f"{start}:", f"{start};", MOST_KEYS + 1)
            found |= dict.fromkeys(row[0] for row in [*whole, *longer])
    if found:
        return list(found)
    # Items without a readable id have a generated key: the payloads of these few are searched for the value.
    like = f'%"{text.replace("!", "!!").replace("%", "!%").replace("_", "!_")}"%'
    where = f"{_between('item_key')} AND event_json LIKE ? ESCAPE '!' ORDER BY id LIMIT ?"
    sql = f"SELECT item_key, event_json FROM dead_letter WHERE {where}"
    rows = fetch(sql, f"{UNNAMED}:", f"{UNNAMED};", like, MOST_KEYS + 1)
    # SQLite's LIKE takes A for a; the ids of videos do not.
    return [key for key, payload in rows if f'"{text}"' in payload]


def under_sql(column: str, table: str) -> str:
    """Keys from one text up to another, in the order of their bytes."""
    order = f"{column} USING ~<~" if is_postgres() else column
    return f"SELECT DISTINCT {column} FROM {table} WHERE {_between(column)} ORDER BY {order} LIMIT ?"


def _between(column: str) -> str:
    """Byte by byte: on PostgreSQL whatever its collation, by an index of its own."""
    above, below = ("~>=~", "~<~") if is_postgres() else (">=", "<")
    return f"{column} {above} ? AND {column} {below} ?"


def known_key(key: str) -> KnownKey | None:
    return fetch_one(KnownKey, f"SELECT {columns(KnownKey)} FROM dedupe_keys WHERE key = ?", key)


def inbox_row(key: str) -> InboxRow | None:
    sql = "SELECT id, item_key, watch_id, state, claims, event_type, occurred_at, seen_at FROM inbox WHERE item_key = ?"
    return fetch_one(InboxRow, sql, key)


def events_of(key: str) -> list[EventHistoryRow]:
    sql = (
        "SELECT id, event_id, dedupe_key, source, event_type, occurred_at, subject_json, state, tier, watch_id, "
        "first_seen_at, delivered_at, removed_at FROM events WHERE dedupe_key = ? ORDER BY id"
    )
    return fetch_all(EventHistoryRow, sql, key)


def outbox_of(event_pks: Sequence[int]) -> list[OutboxRow]:
    sql = "SELECT event_pk, destination, tier, watch_id, seq, state, due_at, batch_id FROM outbox WHERE event_pk IN"
    return fetch_all(OutboxRow, f"{sql} ({marks(event_pks)}) ORDER BY destination", *event_pks)


def batches_of(event_pks: Sequence[int]) -> list[BatchRow]:
    sql = (
        "SELECT b.id, be.event_pk, b.batch_id, b.destination, b.tier, b.size, b.probe, b.state, b.attempts, "
        "b.next_attempt_at, b.created_at, b.settled_at FROM batch_events be JOIN batches b ON b.id = be.batch_id "
        f"WHERE be.event_pk IN ({marks(event_pks)}) ORDER BY b.id"
    )
    return fetch_all(BatchRow, sql, *event_pks)


def attempts_of(event_pks: Sequence[int], destination: str | None = None) -> list[AttemptRow]:
    """Every attempt to send these events, oldest first, to all destinations or to one."""
    # An event that the receiver refused became a dead letter in the transaction that finished the attempt.
    refusal = (
        "SELECT MAX(d.error_reason) FROM dead_letter d "
        "WHERE d.event_id = e.event_id AND d.destination = a.destination AND d.died_at = a.finished_at"
    )
    sql = (
        "SELECT a.batch_id, a.destination, a.request_id, a.attempt, a.form, a.started_at, a.finished_at, "
        "CASE a.outcome WHEN 'paused' THEN 'throttled' ELSE a.outcome END, "  # release 1.0 wrote `paused`
        f"a.status, a.reason, a.answer, ({refusal}) FROM batch_events be JOIN events e ON e.id = be.event_pk "
        f"JOIN delivery_attempts a ON a.batch_id = be.batch_id WHERE be.event_pk IN ({marks(event_pks)}) ORDER BY a.id"
    )
    return [one for one in fetch_all(AttemptRow, sql, *event_pks) if destination in (None, one.destination)]


def attempts_for(event_id: str, destination: str) -> list[AttemptRow]:
    """All attempts to send this event to this destination, oldest first. Empty once its row is removed."""
    return attempts_of(column("SELECT id FROM events WHERE event_id = ?", event_id), destination)


def sent_to(event_pks: Sequence[int]) -> dict[int, set[str]]:
    """By event: the destinations that it was sent to, accepted or not."""
    found: dict[int, set[str]] = {}
    for chunk in chunks(event_pks):
        sql = "SELECT be.event_pk, b.destination FROM batch_events be JOIN batches b ON b.id = be.batch_id"
        for event_pk, name in fetch(f"{sql} WHERE be.event_pk IN ({marks(chunk)})", *chunk):
            found.setdefault(event_pk, set()).add(name)
    return found


def watch_name(watch_id: int | None) -> WatchName | None:
    return fetch_one(WatchName, "SELECT id, source, ref, name FROM watches WHERE id = ?", watch_id)


def earlier_item(entry: OutboxRow) -> str | None:
    """What has to be sent before this entry, to keep the order of its watch: an item key, or an event_id."""
    place = (entry.watch_id, entry.seq)
    item = "SELECT item_key FROM inbox WHERE state = 'new' AND watch_id = ? AND id < ? ORDER BY id LIMIT 1"
    event = (
        "SELECT e.event_id FROM outbox a JOIN batches b ON b.id = a.batch_id JOIN events e ON e.id = a.event_pk "
        "WHERE a.state = 'in_flight' AND a.watch_id = ? AND a.seq < ? AND a.destination = ? AND a.tier = ? "
        "AND b.attempts = 0 ORDER BY a.seq LIMIT 1"
    )
    found: str | None = value(item, *place) or value(event, *place, entry.destination, entry.lane)
    return found


@dataclass(frozen=True)
class Lane:
    """What is queued in one lane of one destination."""

    name: str
    pending: int
    in_flight: int
    oldest_seen_at: float | None
    next_due_at: float | None


def lanes(destination: str) -> list[Lane]:
    """Lanes with queued events."""
    sql = (
        "SELECT o.tier, SUM(CASE WHEN o.state = 'pending' THEN 1 ELSE 0 END), "
        "SUM(CASE WHEN o.state = 'in_flight' THEN 1 ELSE 0 END), "
        # An event that is sent again waits since then.
        f"MIN(CASE WHEN o.tier = '{RESEND}' THEN o.due_at ELSE e.first_seen_at END), MIN(o.due_at) "
        "FROM outbox o JOIN events e ON e.id = o.event_pk WHERE o.destination = ? GROUP BY o.tier ORDER BY o.tier"
    )
    return fetch_all(Lane, sql, destination)


def all_destinations() -> list[str]:
    """Every destination that the database knows, configured or not."""
    return column("SELECT destination FROM destinations UNION SELECT destination FROM outbox ORDER BY 1")
