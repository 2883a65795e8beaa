"""Samples of each destination's backlog, so that its growth is known without counting events at every look."""

from dataclasses import dataclass

from csi.store.db import columns, fetch_all, number, run

KEPT_SECONDS = 3600.0
LONGEST_REQUEST = 300.0
"""Attempts that started longer before the last sample have been counted."""


@dataclass(frozen=True)
class BacklogSample:
    """What waited for one destination at one time."""

    destination: str
    taken_at: float
    waiting: int
    """Events that are not settled."""
    due: int
    """Those of them that are not part of a batch that is still filling."""
    delivered: int
    """Events that were accepted since the sample before."""


def take(destination: str, tiers: tuple[str, ...], since: float, now: float) -> None:
    """Count and store. By indexes: pending events by lane, batches that are not settled, attempts since `since`."""
    pending = "SELECT COUNT(*) FROM outbox WHERE state = 'pending' AND destination = ? AND tier = ?"
    waiting = sum(number(pending, destination, tier) for tier in tiers)
    due = sum(number(f"{pending} AND due_at <= ?", destination, tier, now) for tier in tiers)
    in_batches = number(
        "SELECT COALESCE(SUM(size), 0) FROM batches WHERE state IN ('ready', 'sending') AND destination = ?",
        destination,
    )
    delivered = number(
        "SELECT COALESCE(SUM(b.size), 0) FROM delivery_attempts a JOIN batches b ON b.id = a.batch_id "
        "WHERE a.destination = ? AND a.started_at > ? AND a.finished_at > ? AND a.outcome = 'delivered'",
        *(destination, since - LONGEST_REQUEST, since),
    )
    sql = (
        "INSERT INTO backlog_samples (destination, taken_at, waiting, due, delivered) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING"
    )
    run(sql, destination, now, waiting + in_batches, due + in_batches, delivered)


def since(moment: float) -> list[BacklogSample]:
    """Of all destinations, oldest first."""
    sql = f"SELECT {columns(BacklogSample)} FROM backlog_samples WHERE taken_at > ? ORDER BY taken_at"
    return fetch_all(BacklogSample, sql, moment)


def delete_old(now: float) -> None:
    """Also samples from the future, which a clock that was set back left behind."""
    run("DELETE FROM backlog_samples WHERE taken_at < ? OR taken_at > ?", now - KEPT_SECONDS, now)
