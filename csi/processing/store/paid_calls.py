"""Paid calls: a row before each call, its price after it. The rows of a day are the spending of that day."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from csi.processing.money import MICRO, from_micro, to_micro
from csi.processing.store.db import changed, is_postgres, number, one, run

State = Literal["started", "paid", "free", "unknown"]

# A call whose outcome is unknown counts with its estimate: the budget may be used up early, never exceeded.
_USED = """SELECT COALESCE(SUM(CASE state WHEN 'paid' THEN actual_micro_usd WHEN 'free' THEN 0
                                ELSE estimated_micro_usd END), 0) FROM calls"""


@dataclass(frozen=True)
class PaidCall:
    """One paid call. `answer` is the stored response, so that a retry does not pay for it again."""

    state: State
    answer: str | None
    estimate: Decimal = Decimal(0)


def find(call_key: str) -> PaidCall | None:
    row = one("SELECT state, answer, estimated_micro_usd FROM calls WHERE call_key = ?", call_key)
    return PaidCall(row[0], row[1], Decimal(row[2]) * MICRO) if row else None


def used(day: str) -> Decimal:
    return from_micro(number(f"{_USED} WHERE day = ?", day))


def used_between(start: float, end: float) -> Decimal:
    return from_micro(number(f"{_USED} WHERE started_at >= ? AND started_at < ?", start, end))


def reserved(day: str) -> Decimal:
    """The part of `used` whose price is not known yet."""
    sql = "SELECT SUM(estimated_micro_usd) FROM calls WHERE day = ? AND state IN ('started', 'unknown')"
    return from_micro(number(sql, day))


def returning(day: str) -> Decimal:
    """The part of `reserved` that calls which are under way will return or pay."""
    return from_micro(number("SELECT SUM(estimated_micro_usd) FROM calls WHERE day = ? AND state = 'started'", day))


def left(day: str, budget: Decimal) -> Decimal:
    """What a call may cost now, exact."""
    return (to_micro(budget) - number(f"{_USED} WHERE day = ?", day)) * MICRO


def spent_on(job_id: str) -> Decimal:
    return from_micro(number(f"{_USED} WHERE job_id = ?", job_id))


def begin(
    call_key: str, job_id: str, provider: str, *, day: str, estimate: Decimal, budget: Decimal, now: float
) -> bool:
    """Reserve the estimate. The caller commits before it sends the request. False: the budget does not allow it."""
    if is_postgres():
        run("SELECT pg_advisory_xact_lock(7234507)")  # two workers must not both reserve the last cent
    if estimate > left(day, budget):
        return False
    sql = """INSERT INTO calls (call_key, job_id, provider, day, state, estimated_micro_usd, started_at)
             VALUES (?, ?, ?, ?, 'started', ?, ?)"""
    run(sql, call_key, job_id, provider, day, to_micro(estimate), now)
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
    """Record the outcome. A call that is finished already does not change."""
    sql = """UPDATE calls SET state = ?, actual_micro_usd = ?, tokens = ?, answer = ?, finished_at = ?
             WHERE call_key = ? AND state IN ('started', 'unknown')"""
    units = None if actual is None else to_micro(actual)
    changed(sql, state, units, tokens, answer, now, call_key)


def void(call_key: str) -> None:
    """Forget the answer of a paid call that is no summary: the next attempt makes a new call."""
    changed("UPDATE calls SET answer = NULL WHERE call_key = ?", call_key)


def tokens_between(start: float, end: float) -> int:
    return number("SELECT SUM(tokens) FROM calls WHERE started_at >= ? AND started_at < ?", start, end)
