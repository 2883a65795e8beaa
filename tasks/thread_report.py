"""Which tasks the threads of this process run, since when, and where each of them is in the code."""

import sys
import threading
import time
import traceback
from pathlib import Path

from csi.worker.stall import RunningTask

FRAMES = 8
_CODE = str(Path(__file__).resolve().parents[1])


class RunningTasks:
    """Written by each worker thread for itself, read by the maintenance loop."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[str, str, str, float]] = {}
        self._ended: dict[str, float] = {}

    def begin(self, task: str, key: str) -> None:
        thread = threading.current_thread()
        self._running[thread.ident or 0] = (thread.name, task, key, time.monotonic())

    def end(self, task: str) -> None:
        self._running.pop(threading.get_ident(), None)
        self._ended[task] = time.monotonic()

    def now(self) -> list[RunningTask]:
        """Longest first."""
        now = time.monotonic()
        found = [
            RunningTask(thread, ident, task, key, now - began)
            for ident, (thread, task, key, began) in list(self._running.items())
        ]
        return sorted(found, key=lambda task: -task.seconds)

    def seconds_since_end(self) -> dict[str, float]:
        """By the name of the task, how long ago one ended."""
        now = time.monotonic()
        return {task: now - ended for task, ended in list(self._ended.items())}


def where(ident: int) -> str:
    """The innermost calls of a thread, the innermost first. Empty: the thread has ended."""
    frame = sys._current_frames().get(ident)
    if frame is None:
        return ""
    calls = []
    for call in reversed(traceback.extract_stack(frame)[-FRAMES:]):
        path = call.filename.removeprefix(f"{_CODE}/").rpartition("site-packages/")[2]
        calls.append(f"{path}:{call.lineno} {call.name}")
    return " < ".join(calls)


def where_named(thread: str) -> str:
    """The same, by the thread's name."""
    found = (one.ident for one in threading.enumerate() if one.name == thread and one.ident is not None)
    return where(next(found, 0))
