"""What should happen next. Steps return wake-ups; losing one costs time, never data."""

from dataclasses import dataclass
from typing import Literal

Step = Literal["intake", "admit", "transcribe", "summarise", "notify"]


@dataclass(frozen=True)
class Wake:
    """Run this step for this row, now or at a time."""

    step: Step
    key: str = ""
    at: float | None = None


def wake_job(job_id: str, at: float | None = None) -> Wake:
    """A job's id says what kind it is."""
    return Wake("transcribe" if job_id.startswith("tr_") else "summarise", job_id, at)
