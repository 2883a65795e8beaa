"""Reading only: what will happen next, and what is under way. Rows, not tasks: they are what the worker goes by."""

from dataclasses import dataclass

from csi.store.db import fetch


@dataclass(frozen=True)
class Coming:
    """A watch and when it is read next. `lease_until`: somebody reads it now."""

    id: int
    source: str
    ref: str
    name: str | None
    next_poll_at: float
    lease_until: float | None
    interval: float
    health: str


@dataclass(frozen=True)
class Travelling:
    """A batch that has not come to its end."""

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
class Inbox:
    """Items that were seen and are not events."""

    waiting: int
    quarantined: int
    oldest_at: float | None


def coming_reads(limit: int) -> list[Coming]:
    """Active watches, the next first."""
    sql = (
        "SELECT id, source, ref, name, next_poll_at, lease_until, COALESCE(planned_interval, interval_seconds), health "
        "FROM watches WHERE state = 'active' ORDER BY next_poll_at, id LIMIT ?"
    )
    return [Coming(*row) for row in fetch(sql, limit)]


def being_read(now: float) -> int:
    """Reads that are under way, in all processes."""
    sql = "SELECT COUNT(*) FROM watches WHERE state = 'active' AND lease_until >= ?"
    return int(fetch(sql, now)[0][0])


def due_counts(now: float, within: float) -> tuple[int, int]:
    """Active watches that are due now, and that fall due within so many seconds."""
    sql = "SELECT COUNT(*) FROM watches WHERE state = 'active' AND next_poll_at <= ?"
    return int(fetch(sql, now)[0][0]), int(fetch(sql, now + within)[0][0])


def travelling(limit: int) -> list[Travelling]:
    """The next to be sent first."""
    sql = (
        "SELECT id, batch_id, destination, tier, size, state, attempts, next_attempt_at, created_at FROM batches "
        "WHERE state IN ('ready', 'sending') ORDER BY next_attempt_at, id LIMIT ?"
    )
    return [Travelling(*row) for row in fetch(sql, limit)]


def unsettled() -> dict[str, int]:
    """Batches that are `ready` or `sending`."""
    sql = "SELECT state, COUNT(*) FROM batches WHERE state IN ('ready', 'sending') GROUP BY state"
    return {"ready": 0, "sending": 0} | {state: int(count) for state, count in fetch(sql)}


def inbox() -> Inbox:
    counted = {
        state: (int(count), oldest)
        for state, count, oldest in fetch("SELECT state, COUNT(*), MIN(seen_at) FROM inbox GROUP BY state")
    }
    waiting, oldest = counted.get("new", (0, None))
    return Inbox(waiting, counted.get("quarantined", (0, None))[0], oldest)
