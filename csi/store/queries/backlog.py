"""Reading only: what runs at this moment, and what waits to run."""

from dataclasses import dataclass

from csi.store.db import fetch


@dataclass(frozen=True)
class Held:
    """A row that a process holds under a lease: work that is being done."""

    step: str
    id: int
    what: str
    holder: str | None
    lease_until: float


@dataclass(frozen=True)
class Later:
    """A batch that waits for its next attempt."""

    id: int
    batch_id: str
    destination: str
    lane: str
    size: int
    attempts: int
    next_attempt_at: float


def running() -> list[Held]:
    """Whatever is held, also by a lease that has run out: its holder may be dead."""
    sql = (
        "SELECT 'poll', id, source || ' ' || ref, lease_token, lease_until FROM watches WHERE lease_token IS NOT NULL "
        "UNION ALL SELECT 'ingest', id, item_key, lease_token, lease_until FROM inbox "
        "WHERE state = 'new' AND lease_token IS NOT NULL "
        "UNION ALL SELECT 'deliver', id, batch_id || ' to ' || destination, lease_token, lease_until FROM batches "
        "WHERE state = 'sending' ORDER BY 5"
    )
    return [Held(step, pk, what, _holder(token), until or 0.0) for step, pk, what, token, until in fetch(sql)]


def waiting_batches() -> list[Later]:
    sql = (
        "SELECT id, batch_id, destination, tier, size, attempts, next_attempt_at FROM batches "
        "WHERE state = 'ready' ORDER BY next_attempt_at"
    )
    return [Later(*row) for row in fetch(sql)]


def due_watches(now: float) -> tuple[int, float | None]:
    """How many active watches are past their time and not being read, and since when the longest waits."""
    sql = (
        "SELECT COUNT(*), MIN(next_poll_at) FROM watches "
        "WHERE state = 'active' AND next_poll_at <= ? AND lease_token IS NULL"
    )
    count, oldest = fetch(sql, now)[0]
    return int(count), oldest


def waiting_items() -> tuple[int, float | None]:
    """Items that are not events yet, and when the longest waiting was seen."""
    count, oldest = fetch("SELECT COUNT(*), MIN(seen_at) FROM inbox WHERE state = 'new'")[0]
    return int(count), oldest


def item_key(item_id: int) -> str | None:
    """None: it is in the inbox no more."""
    found = fetch("SELECT item_key FROM inbox WHERE id = ?", item_id)
    return str(found[0][0]) if found else None


def _holder(token: str | None) -> str | None:
    """The process id that a lease token begins with."""
    return token.partition("-")[0] if token else None
