"""Whether the worker's threads make progress: rules over what the process knows of its tasks; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

HUNG_SECONDS = 150.0
"""Every step of the pipeline ends within a minute: requests have deadlines, and SQLite waits for 10 s."""

LONG_TASK_SECONDS = 1800.0
"""For tasks that delete, archive or fetch in many small steps."""

STEPS = ("poll_watch", "ingest_item", "ingest_ahead", "flush_tier", "deliver_batch", "probe_receiver")
"""The tasks that are steps of the pipeline."""
POLL = "poll_watch"

LATE_SECONDS = 60.0
"""A watch overdue by more than this is waiting for a thread."""


@dataclass(frozen=True)
class RunningTask:
    """A task that a thread of this process runs now, and for how long."""

    thread: str
    ident: int
    task: str
    key: str
    seconds: float

    @property
    def is_hung(self) -> bool:
        return self.seconds > (HUNG_SECONDS if self.task in STEPS else LONG_TASK_SECONDS)


@dataclass(frozen=True)
class PollProgress:
    """What is known of polling while polling is allowed."""

    seconds: float
    """Since the last poll ended, or since the worker started."""
    watches: int
    late: int
    """Watches that are due for longer than LATE_SECONDS."""
    overdue: int
    """Watches that are long overdue, as `/livez` counts them."""


def stalled_steps(tasks: Sequence[RunningTask], ended: dict[str, float]) -> str | None:
    """Steps other than polls that hang while none of their kind ends. `ended`: seconds since one ended, by name."""
    for name in STEPS:
        hung = [task for task in tasks if task.task == name and task.is_hung]
        if name != POLL and hung and ended.get(name, HUNG_SECONDS + 1) > HUNG_SECONDS:
            return f"{_threads(len(hung))} in {name}, and none of these tasks ends"
    return None


def stalled_polls(tasks: Sequence[RunningTask], progress: PollProgress, slots: int) -> str | None:
    """Polls that hang while no other poll ends and half of the watches wait; or overdue watches that no thread polls.

    A single watch whose poll hangs is no reason to restart the worker: the others are polled by other threads. Nor is
    a worker with more watches than it can poll in time: its polls end.
    """
    hung = sum(task.task == POLL and task.is_hung for task in tasks)
    if progress.seconds <= HUNG_SECONDS:
        return None
    if hung and (hung >= slots or progress.late * 2 >= progress.watches):
        return f"{_threads(hung)} in a poll, no poll ends, and {progress.late:,} watches wait"
    if progress.overdue * 2 >= max(progress.watches, 1):
        return f"{progress.overdue:,} of {progress.watches:,} watches are long overdue, and no poll ends"
    return None


def _threads(number: int) -> str:
    return "1 thread hangs" if number == 1 else f"{number:,} threads hang"
