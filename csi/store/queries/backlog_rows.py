"""What runs at this moment, what waits, and what is due next. Reads only; rows, not tasks: the worker goes by them."""

from dataclasses import dataclass

from csi.store.db import fetch, fetch_all, fetch_one, number, value


@dataclass(frozen=True)
class LeasedRow:
    """A row that a process holds under a lease: work that is being done."""

    step: str
    id: int
    what: str
    holder: str | None
    lease_until: float


@dataclass(frozen=True)
class UnsettledBatch:
    """A batch that is `ready` or `sending`."""

    id: int
    batch_id: str
    destination: str
    lane: str
    size: int
    state: str
    attempts: int
    next_attempt_at: float
    created_at: float


@dataclass(frozen=True)
class PlannedPoll:
    """A watch and when it is polled next. `lease_until`: a process polls it now."""

    id: int
    source: str
    ref: str
    name: str | None
    next_poll_at: float
    lease_until: float | None
    interval: float
    health: str


@dataclass(frozen=True)
class Inbox:
    """Items that are not events yet."""

    waiting: int
    quarantined: int
    oldest_at: float | None


def running() -> list[LeasedRow]:
    """Every lease, also one that has expired: its holder may be dead."""
    sql = (
        "SELECT 'poll', id, source || ' ' || ref, lease_token, lease_until FROM watches WHERE lease_token IS NOT NULL "
        "UNION ALL SELECT 'ingest', id, item_key, lease_token, lease_until FROM inbox "
        "WHERE state = 'new' AND lease_token IS NOT NULL "
        "UNION ALL SELECT 'deliver', id, batch_id || ' to ' || destination, lease_token, lease_until FROM batches "
        "WHERE state = 'sending' ORDER BY 5"
    )
    # A lease token begins with the id of its process.
    return [
        LeasedRow(step, pk, what, token.partition("-")[0] if token else None, until or 0.0)
        for step, pk, what, token, until in fetch(sql)
    ]


_UNSETTLED = (
    "SELECT id, batch_id, destination, tier, size, state, attempts, next_attempt_at, created_at FROM batches "
    "WHERE state IN ('ready', 'sending')"
)


def unsettled_batches(limit: int = 100_000) -> list[UnsettledBatch]:
    """The next to be sent first."""
    return fetch_all(UnsettledBatch, f"{_UNSETTLED} ORDER BY next_attempt_at, id LIMIT ?", limit)


def unsettled_batch(batch_id: int) -> UnsettledBatch | None:
    return fetch_one(UnsettledBatch, f"{_UNSETTLED} AND id = ?", batch_id)


def unsettled_counts() -> dict[str, int]:
    """Batches that are `ready` or `sending`."""
    sql = "SELECT state, COUNT(*) FROM batches WHERE state IN ('ready', 'sending') GROUP BY state"
    return {"ready": 0, "sending": 0} | {state: int(count) for state, count in fetch(sql)}


def due_watches(now: float) -> tuple[int, float | None]:
    """Active watches that are due and not being polled, and since when the longest waits."""
    sql = (
        "SELECT COUNT(*), MIN(next_poll_at) FROM watches "
        "WHERE state = 'active' AND next_poll_at <= ? AND lease_token IS NULL"
    )
    count, oldest = fetch(sql, now)[0]
    return int(count), oldest


def due_counts(now: float, within: float) -> tuple[int, int]:
    """Active watches that are due now, and that fall due within so many seconds."""
    sql = "SELECT COUNT(*) FROM watches WHERE state = 'active' AND next_poll_at <= ?"
    return number(sql, now), number(sql, now + within)


def planned_polls(limit: int) -> list[PlannedPoll]:
    """Active watches, the next first."""
    sql = (
        "SELECT id, source, ref, name, next_poll_at, lease_until, COALESCE(planned_interval, interval_seconds), health "
        "FROM watches WHERE state = 'active' ORDER BY next_poll_at, id LIMIT ?"
    )
    return fetch_all(PlannedPoll, sql, limit)


def polls_running(now: float) -> int:
    """In all processes."""
    return number("SELECT COUNT(*) FROM watches WHERE state = 'active' AND lease_until >= ?", now)


def inbox() -> Inbox:
    found = {row[0]: row for row in fetch("SELECT state, COUNT(*), MIN(seen_at) FROM inbox GROUP BY state")}
    _, waiting, oldest = found.get("new", ("new", 0, None))
    return Inbox(waiting, found["quarantined"][1] if "quarantined" in found else 0, oldest)


def item_key(item_id: int) -> str | None:
    """None: it is no longer in the inbox."""
    found: str | None = value("SELECT item_key FROM inbox WHERE id = ?", item_id)
    return found
