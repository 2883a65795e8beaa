"""Notice that threads of this worker hang: log where each is, and end the process when they stay so.

Threads cannot be ended in Python. The process ends with an exit code of its own, and the service manager, `csi run` or
the container engine starts it again; rows that the threads had claimed are released, or their leases expire.
"""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, replace

from csi.errors import STALLED
from csi.logs import log
from csi.pipeline import schedule
from csi.runtime import Runtime
from csi.status import verdict
from csi.store import heartbeats, watches
from csi.store.db import writing
from csi.store.heartbeats import WORKER
from csi.worker.stall import LATE_SECONDS, PollProgress, RunningTask, stalled_polls, stalled_steps
from tasks.huey_worker import WorkerConsumer
from tasks.thread_report import where, where_named

RESTART_SECONDS = 60.0
"""How long a stall lasts before the process ends itself: long enough to notify the operator."""

LOOP_SECONDS = 180.0
"""A maintenance loop without the end of a pass for so long hangs; no heartbeat has been written meanwhile."""

NOTIFIER_SECONDS = 120.0
"""Services have time limits of seconds: a notifier that was away for so long hangs."""

DATABASE_SECONDS = 60.0
"""After a database error threads wait for the database, and their order is not known: that is no stall of theirs."""


@dataclass(frozen=True)
class Stall:
    """Why no progress is made. `since` is monotonic. Ends by a restart, or when the thread continues."""

    reason: str
    since: float
    ends_by_restart: bool = True


class StallWatch:
    """What this process knows of its own stalls. The maintenance loop looks for them; another thread ends the process,
    so that a loop that hangs is noticed, too."""

    def __init__(self) -> None:
        self.stall: Stall | None = None
        self._hung: dict[int, RunningTask] = {}
        self._stored: object = "not known: the process before may have stored a stall"

    def find_stall(self, rt: Runtime, consumer: WorkerConsumer, started_at: float) -> str | None:
        """Log threads that hang, once each. Returns why steps of the pipeline make no progress; None: they do."""
        # A long read that gets page after page does not hang
        progressed, now = rt.process.progressed_at, time.monotonic()
        running = [
            replace(task, seconds=min(task.seconds, now - progressed.get(task.ident, 0.0)))
            for task in consumer.huey.running.now()
        ]
        self._log_hung(running)
        return stalled_steps(running, consumer.huey.running.seconds_since_end()) or self._polls(rt, running, started_at)

    def set(self, reason: str | None, *, ends_by_restart: bool = True) -> None:
        if reason is None:
            if self.stall is not None:
                log.info("worker makes progress again", stalled=self.stall.reason)
            self.stall = None
        elif self.stall is None:
            self.stall = Stall(reason, time.monotonic(), ends_by_restart)

    def store(self, rt: Runtime, *, is_proven: bool) -> None:
        """For other processes, in the worker's heartbeat row. Writes only what changed.

        `is_proven`: a step has ended in this process. Until then the row keeps the stall of the process before, which
        ended itself: otherwise each restart would be the end of one alert and the start of another.
        """
        hung = [(task.task, task.key) for task in self._hung.values()]
        state = (self.stall, *hung)
        if state == self._stored or (self.stall is None and not hung and not is_proven):
            return
        stored = None
        if self.stall or hung:
            # Numbers and names of tasks only: health pages show it.
            since = None if self.stall is None else rt.now() - (time.monotonic() - self.stall.since)
            threads = [{"task": task.task, "since": rt.now() - task.seconds} for task in self._hung.values()]
            stored = json.dumps({"reason": self.stall and self.stall.reason, "since": since, "hung": threads})
        with writing():
            heartbeats.note_stall(WORKER, stored)
        self._stored = state

    def must_end(self, looped_at: float, database_failed_at: float) -> str | None:
        """Why the process ends itself now; None: it does not."""
        now = time.monotonic()
        if now - database_failed_at < DATABASE_SECONDS:
            return None
        if now - looped_at > LOOP_SECONDS:
            return f"the maintenance loop hangs: {where_named('Maintenance')}"
        if self.stall is not None and self.stall.ends_by_restart and now - self.stall.since > RESTART_SECONDS:
            return self.stall.reason
        return None

    def _log_hung(self, running: list[RunningTask]) -> None:
        hung = {task.ident: task for task in running if task.is_hung}
        for ident, task in hung.items():
            if ident not in self._hung or self._hung[ident].key != task.key:
                fields = {"thread": task.thread, "task": task.task, "key": task.key, "seconds": round(task.seconds)}
                log.error("thread hangs", **fields, where=where(ident))
        for ident in self._hung.keys() - hung.keys():
            log.info("thread works again", thread=self._hung[ident].thread, task=self._hung[ident].task)
        self._hung = hung

    def _polls(self, rt: Runtime, running: list[RunningTask], started_at: float) -> str | None:
        ended_at = rt.process.poll_ended_at
        seconds = rt.now() - started_at if ended_at is None else time.monotonic() - ended_at
        slots = rt.share.polls
        if stalled_polls(running, PollProgress(seconds, 1, 1, 1), slots) is None or not schedule.may_poll(rt):
            return None  # not even if every watch waited: the watches need not be read
        found, now = watches.schedule(), rt.now()
        late = sum(now - max(one.next_poll_at, started_at) > LATE_SECONDS for one in found)
        overdue = sum(verdict.is_overdue(one, now, started_at) for one in found)
        return stalled_polls(running, PollProgress(seconds, len(found), late, overdue), slots)


def end_process(reason: str, release: threading.Thread) -> None:
    """End without waiting for threads that hang. `release` releases what this process holds, as far as the database
    lets it within seconds."""
    log.critical("worker ends itself to be started again", reason=reason, exit_code=STALLED)
    release.start()
    release.join(5.0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STALLED)
