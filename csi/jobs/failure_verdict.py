"""Decide what a failure means for a job: postpone, retry or give up. Pure."""

import random
from dataclasses import dataclass

from csi.errors import SourceError

FIRST_WAIT = 60.0
LONGEST_WAIT = 3600.0
KEY_WAIT = 900.0
SPREAD = 600.0
"""Jobs that wait for midnight are spread over this time, so that they do not all start at once."""


@dataclass(frozen=True)
class PostponeJob:
    """Run again at `until`; no attempt is counted, because the job itself did not fail."""

    until: float
    why: str


@dataclass(frozen=True)
class RetryWithBackoff:
    """Run again at `until`; an attempt is counted."""

    until: float
    why: str


@dataclass(frozen=True)
class GiveUpJob:
    """The job is dead."""

    why: str


Verdict = PostponeJob | RetryWithBackoff | GiveUpJob


def judge(
    error: SourceError, *, attempts: int, max_attempts: int, now: float, midnight: float, rng: random.Random
) -> Verdict:
    """`midnight` is the end of the API's day."""
    why = str(error)
    if error.kind in ("budget", "quota"):
        return PostponeJob(midnight + 1.0 + rng.uniform(0.0, SPREAD), why)
    if error.kind in ("throttled", "paused"):
        return PostponeJob(now + (error.retry_after or FIRST_WAIT * rng.uniform(0.8, 1.2)), why)
    if error.kind == "auth":
        return PostponeJob(now + KEY_WAIT, why)
    if attempts >= max_attempts or error.kind == "denied":
        return GiveUpJob(why)
    wait = min(FIRST_WAIT * 2 ** (max(attempts, 1) - 1), LONGEST_WAIT)
    return RetryWithBackoff(now + max(wait * rng.uniform(0.8, 1.2), error.retry_after or 0.0), why)
