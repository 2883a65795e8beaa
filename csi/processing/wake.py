"""Wake-ups: what should run next. Steps return them; a lost wake-up costs time, never data."""

from dataclasses import dataclass
from typing import Literal

Step = Literal["intake", "admit", "transcribe", "summarise", "notify"]


@dataclass(frozen=True)
class StepWake:
    """Run this step for this row, now or at the given time."""

    step: Step
    key: str = ""
    at: float | None = None


def wake_job(job_id: str, at: float | None = None) -> StepWake:
    """The prefix of a job's id tells its kind."""
    return StepWake("transcribe" if job_id.startswith("tr_") else "summarise", job_id, at)
