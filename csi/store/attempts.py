"""Delivery attempts, one row per request: inserted before it is sent, completed with the answer."""

from csi.logs import redact
from csi.store.db import changed, number, run

ANSWER_BYTES = 2_000


def start(
    batch_id: int | None, destination: str, request_id: str, attempt: int, form: str, now: float, *, url: str = ""
) -> int:
    """`url` is the address without what may be secret."""
    sql = (
        "INSERT INTO delivery_attempts (batch_id, destination, request_id, attempt, form, started_at, url, outcome) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 'sending') RETURNING id"
    )
    return number(sql, batch_id, destination, request_id, attempt, form, now, url)


def finish(
    attempt_id: int, outcome: str, now: float, *, status: int | None = None, reason: str = "", answer: str = ""
) -> None:
    """Store the result and the first 2 kB of the answer, without secrets that the receiver sends back."""
    # NUL goes, which PostgreSQL does not store; then secrets, before the cut: half of one would not be recognised.
    clean = redact(answer.replace("\x00", "")).encode("utf-8", "replace")
    kept = clean[:ANSWER_BYTES].decode("utf-8", "ignore")
    sql = "UPDATE delivery_attempts SET outcome = ?, finished_at = ?, status = ?, reason = ?, answer = ? WHERE id = ?"
    run(sql, outcome, now, status, redact(reason) or None, kept or None, attempt_id)


def interrupt_lone(now: float) -> int:
    """Close tests and probes, which belong to no batch, of a process that died. No other process may run."""
    sql = "UPDATE delivery_attempts SET outcome = 'interrupted', finished_at = ?"
    return changed(f"{sql} WHERE batch_id IS NULL AND outcome = 'sending'", now)


def interrupt(batch_id: int, now: float) -> int:
    """Close attempts whose process died: it is unknown whether the receiver got them."""
    sql = "UPDATE delivery_attempts SET outcome = 'interrupted', finished_at = ?"
    return changed(f"{sql} WHERE batch_id = ? AND outcome = 'sending'", now, batch_id)
