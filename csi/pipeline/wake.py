"""What should happen next. Steps return wake-ups; `tasks/` makes them happen; losing one costs time, never data."""

from dataclasses import dataclass
from typing import Literal

Step = Literal["poll", "ingest", "flush", "deliver", "probe", "job"]


@dataclass(frozen=True)
class Wake:
    """Run this step for this row (or tier), now or at a time."""

    step: Step
    key: int | str
    at: float | None = None
    urgent: bool = False
