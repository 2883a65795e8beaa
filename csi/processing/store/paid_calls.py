"""What is paid for: a row before every paid call, the price after it. The day's rows are the day's budget."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from csi.processing.money import from_units, to_units
from csi.processing.store.db import changed, fetch, is_postgres, number, one, run

State = Literal["started", "paid", "free", "unknown"]

_USED = """SELECT COALESCE(SUM(CASE state WHEN 'paid' THEN actual_units WHEN 'free' THEN 0
                                ELSE estimated_units END), 0) FROM calls"""
"""A call whose end is not known counts with its estimate: rather too much than too little."""


@dataclass(frozen=True)
class Call:
    """One paid call. `answer` is what came back, so that a retry need not pay for it again."""

    call_key: str
    job_id: str
    state: State
    estimated: Decimal
    actual: Decimal | None
    tokens: int
    answer: str | None


def find(call_key: str) -> Call | None:
    row = one(
        """SELECT call_key, job_id, state, estimated_units, actual_units, tokens, answer FROM calls
           WHERE call_key = ?""",
        call_key,
    )
    if row is None:
        return None
    key, job_id, state, estimated, actual, tokens, answer = row
    paid = None if actual is None else from_units(actual)
    return Call(key, job_id, state, from_units(estimated), paid, tokens, answer)


def used(day: str) -> Decimal:
    return from_units(number(f"{_USED} WHERE day = ?", day))


def spent_on(job_id: str) -> Decimal:
    return from_units(number(f"{_USED} WHERE job_id = ?", job_id))


def begin(
    call_key: str, job_id: str, provider: str, *, day: str, estimate: Decimal, budget: Decimal, now: float
) -> bool:
    """Reserve the money and write the call down, before it is made. False: the day's budget does not allow it."""
    if is_postgres():
        run("SELECT pg_advisory_xact_lock(7234507)")  # two workers must not both take the last cent
    if used(day) + estimate > budget:
        return False
    sql = """INSERT INTO calls (call_key, job_id, provider, day, state, estimated_units, started_at)
             VALUES (?, ?, ?, ?, 'started', ?, ?)"""
    run(sql, call_key, job_id, provider, day, to_units(estimate), now)
    return True


def finish(
    call_key: str,
    state: State,
    now: float,
    *,
    actual: Decimal | None = None,
    tokens: int = 0,
    answer: str | None = None,
) -> None:
    """How it ended. A second word on a call that is finished changes nothing."""
    sql = """UPDATE calls SET state = ?, actual_units = ?, tokens = ?, answer = ?, finished_at = ?
             WHERE call_key = ? AND state IN ('started', 'unknown')"""
    units = None if actual is None else to_units(actual)
    changed(sql, state, units, tokens, answer, now, call_key)


def void(call_key: str) -> None:
    """It was paid for, but its answer is of no use: the next attempt asks anew."""
    changed("UPDATE calls SET answer = NULL WHERE call_key = ?", call_key)


def tokens_between(start: float, end: float) -> int:
    return number("SELECT SUM(tokens) FROM calls WHERE started_at >= ? AND started_at < ?", start, end)


def of_job(job_id: str) -> list[Call]:
    keys = [row[0] for row in fetch("SELECT call_key FROM calls WHERE job_id = ? ORDER BY started_at", job_id)]
    return [call for key in keys if (call := find(key))]
