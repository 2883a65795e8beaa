"""Requests to a destination: the last ones, and how many of a window succeeded and how long they took. Reads only."""

from dataclasses import dataclass

from csi.store.db import fetch, fetch_all

GOOD = ("delivered", "partial", "test_ok")
NOT_JUDGED = ("sending", "other_form")


def answer_words(outcome: str, status: int | None) -> str:
    """The answer to one request in a word or two. Without a status: the service of a message said yes, or the event was
    refused here, because its template failed or it is too large, or no answer came."""
    if status is not None:
        return f"http {status}"
    return "accepted" if outcome in GOOD else "not sent" if outcome == "refused" else "no answer"


@dataclass(frozen=True)
class DestinationAttempt:
    """One request."""

    started_at: float
    finished_at: float | None
    outcome: str
    status: int | None
    reason: str | None
    events: int | None
    """None: it carried no batch, as a test or a probe."""
    url: str
    """The address it was sent to, without what may be secret; empty: it was sent by version 1.0."""

    @property
    def seconds(self) -> float | None:
        return None if self.finished_at is None else max(self.finished_at - self.started_at, 0.0)

    @property
    def answer(self) -> str:
        return answer_words(self.outcome, self.status)


@dataclass(frozen=True)
class DestinationFigures:
    """The requests of a window. `success` and the latencies None: there were none."""

    requests: int
    failed: int
    success: float | None
    p50_seconds: float | None
    p95_seconds: float | None


def last(destination: str, limit: int) -> list[DestinationAttempt]:
    """Newest first."""
    sql = (
        "SELECT a.started_at, a.finished_at, a.outcome, a.status, a.reason, b.size, COALESCE(a.url, '') "
        "FROM delivery_attempts a LEFT JOIN batches b ON b.id = a.batch_id "
        "WHERE a.destination = ? ORDER BY a.started_at DESC, a.id DESC LIMIT ?"
    )
    return fetch_all(DestinationAttempt, sql, destination, limit)


def figures(destination: str, since: float) -> DestinationFigures:
    sql = "SELECT outcome, finished_at - started_at FROM delivery_attempts WHERE destination = ? AND started_at >= ?"
    rows = [row for row in fetch(sql, destination, since) if row[0] not in NOT_JUDGED]
    good, took = sum(row[0] in GOOD for row in rows), sorted(max(row[1], 0.0) for row in rows if row[1] is not None)
    return DestinationFigures(
        requests=len(rows),
        failed=len(rows) - good,
        success=good / len(rows) if rows else None,
        p50_seconds=took[(len(took) - 1) // 2] if took else None,
        p95_seconds=took[-(-95 * len(took) // 100) - 1] if took else None,
    )
