"""What should happen next. Steps return wake-ups; `tasks/` enqueues them; losing one costs time, never data."""

from dataclasses import dataclass
from typing import Literal

Step = Literal[
    "poll", "ingest", "ahead", "flush", "deliver", "probe", "test", "job", "inbound", "subscribe", "streams", "icons"
]  # fmt: skip


@dataclass(frozen=True)
class Wake:
    """Run this step for this row (or lane), now or at a time."""

    step: Step
    key: int | str
    at: float | None = None
    urgent: bool = False
    is_retry: bool = False
    """Another attempt for the row of the task that returns it: Huey's own retry carries the wait until `at`."""
