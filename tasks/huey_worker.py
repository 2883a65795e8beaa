"""The skeleton of both workers: Huey with guarded tasks, a consumer between boot and stop, the maintenance loop.

`tasks.worker` and `tasks.processing` supply what differs: their tasks, their maintenance pass, their store.
"""

import datetime
import itertools
import logging
import math
import os
import signal
import sqlite3
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from huey import Huey
from huey.api import Task, TaskWrapper
from huey.consumer import Consumer

from csi import logs
from csi.errors import CsiError, NoThreads, StoreError, is_without_threads
from csi.logs import RepeatedErrors, log
from csi.sql import BUSY_SECONDS, DatabaseError
from csi.store import database_faults
from tasks.serializer import is_from_1_0
from tasks.sqlite_queue import IDLE_SECONDS, SqliteQueueStorage
from tasks.thread_report import RunningTasks

SCHEDULER_INTERVAL = 0.25
"""Seconds between two reads of the schedule, which carries polls, flushes and retries. Huey's own least is 1."""

AFTER_FAILURE_SECONDS = 5.0
"""How long the queue is left alone after it could not be written. The rows stay due."""

DROPS_LOGGED_SECONDS = 60.0
"""Between two log lines about dropped messages: a program that writes to the queue must not fill the log."""


def _is_not_a_retry(record: logging.LogRecord) -> bool:
    """Drop Huey's warning about `CancelExecution`: it is how `tasks.dispatch` asks for the retry of a batch, whose
    failure the pipeline has logged."""
    return not str(record.msg).startswith("Task %s raised CancelExecution")


class RepeatedRecords(logging.Filter):
    """Lets an error of Huey's threads pass once a minute: without a queue each of them fails twice a second, and each
    line has a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._errors = RepeatedErrors()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR or not record.exc_info:
            return True
        error = record.exc_info[1]
        counted = self._errors.count(f"{record.msg} {record.exc_info[0]}")
        if isinstance(error, sqlite3.Error):  # the queue's file: its error says it all
            record.msg, record.exc_info = f"{str(record.msg).rstrip('.')}: {error}", None
        if counted:
            record.msg = f"{record.msg} (repeated {counted['repeated']} times)"
        return counted is not None


logging.getLogger("huey").addFilter(_is_not_a_retry)
for _name in ("huey", "huey.consumer", "huey.consumer.Worker", "huey.consumer.Scheduler"):
    logging.getLogger(_name).addFilter(RepeatedRecords())


@contextmanager
def exit_on_error() -> Iterator[None]:
    """While a worker starts: an expected error is one sentence on stderr, and the process ends with its exit code."""
    try:
        yield
    except CsiError as error:
        logs.print_error(str(error))
        raise SystemExit(error.exit_code) from None
    except DatabaseError as error:
        fault = database_faults.identify(error)
        logs.print_error(f"{fault.text} ({' '.join(str(error).split())[:300]}); {fault.remedy}")
        raise SystemExit(StoreError.exit_code) from None


class WorkerProcess(ABC):
    """What a worker does beside Huey's threads. The consumer calls boot, start, pause and stop, in this order."""

    interval_seconds: float
    """Between two passes of the maintenance loop."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.errors = RepeatedErrors()
        self.database_failed_at = -math.inf
        """When a statement of this process last failed, because the database could not be used. Monotonic."""
        self.database_failing_since: float | None = None
        """The same for the first one since the database was last written. Monotonic."""
        self.database_error: DatabaseError | None = None
        """The last one."""
        self.looped_at = time.monotonic()
        """When a pass of the maintenance loop last ended, with or without an error. Monotonic."""

    @abstractmethod
    def boot(self, threads: int) -> int:
        """Check that this process can and may work. CsiError when not. Returns how many threads it has: `threads`, or
        more where the configuration needs them."""

    @abstractmethod
    def run_pass(self, consumer: "WorkerConsumer", number: int) -> None:
        """One pass of the maintenance loop; the first has the number 0."""

    @abstractmethod
    def release_leases(self) -> int:
        """Release the rows of this process, so that the next worker need not wait until leases expire."""

    @abstractmethod
    def drop_broken_connection(self) -> None:
        """After a database error: the next statement opens a new connection where the old one is broken."""

    def is_done(self, task: Task) -> bool:
        """Whether this task would find nothing to do: it is dropped from the queue without being run."""
        return False

    def reopen_connections(self) -> None:  # noqa: B027 a worker without SQLite has nothing to do here
        """After an I/O error: a file that was replaced or removed under a connection stays broken for it."""

    def is_leader(self) -> bool:
        """Whether this process enqueues the periodic tasks of all workers that share the queue."""
        return True

    def count_database_error(self, error: DatabaseError) -> dict[str, object] | None:
        """The fields to log; None: log nothing. One line a minute for all tasks and loops that fail for one
        reason, instead of a line for each try."""
        fault = database_faults.identify(error)
        if fault is not database_faults.UNUSABLE:
            self.database_failed_at, self.database_error = time.monotonic(), error
            if self.database_failing_since is None:
                waited = BUSY_SECONDS if fault is database_faults.LOCKED else 0
                self.database_failing_since = self.database_failed_at - waited
        if fault is database_faults.DAMAGED:
            self.end_damaged(error)
        self.drop_broken_connection()
        if fault.kind in ("failing", "read_only"):
            self.reopen_connections()
        counted = self.errors.count(f"{fault.text}: {error}" if fault is database_faults.UNUSABLE else fault.text)
        if counted is None:
            return None
        return {"error": str(error)[:300], "cause": fault.text, "remedy": fault.remedy, **counted}

    def end_damaged(self, error: DatabaseError) -> None:
        """The first error of a damaged file ends the process: what it would still write could damage more. The next
        start checks the whole file, and refuses to work with one that is damaged."""
        sentence = f"the database is damaged: {str(error)[:300]}; {database_faults.DAMAGED.remedy}"
        log.critical("worker ends: the database is damaged", error=str(error)[:300], exit_code=StoreError.exit_code)
        sys.stdout.flush()
        logs.print_error(sentence)
        sys.stderr.flush()
        os._exit(StoreError.exit_code)

    def start(self, consumer: "WorkerConsumer") -> None:
        threading.Thread(target=self._maintain, args=(consumer,), name="Maintenance", daemon=True).start()

    def pause(self) -> None:
        """The maintenance loop ends: nothing new is enqueued from now on."""
        self.stopping.set()

    def stop(self) -> None:
        try:
            log.info("worker ends", released=self.release_leases())
        except Exception:  # noqa: BLE001 the process ends: leases that were not released expire
            log.exception("leases could not be released")

    def _maintain(self, consumer: "WorkerConsumer") -> None:
        for number in itertools.count():
            try:
                self.run_pass(consumer, number)
            except DatabaseError as error:
                if (fields := self.count_database_error(error)) is not None:
                    log.error("maintenance failed; retrying", **fields)
            except Exception as error:  # noqa: BLE001 the loop must survive whatever a lost queue server raises
                text = f"{type(error).__name__}: {error}"[:300]
                if (counted := self.errors.count(text)) is not None:
                    log.exception("maintenance failed; retrying", error=text, **counted)
                self.drop_broken_connection()
            else:
                for cause, seconds in self.errors.take_ended().items():
                    log.info("error resolved", cause=cause, seconds=round(seconds))
            self.looped_at = time.monotonic()
            if self.stopping.wait(self.interval_seconds):
                return


class WorkerConsumer(Consumer):
    """Huey's consumer, between the worker's boot and its orderly stop."""

    huey: "QueueHuey"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._signal_actions.pop(signal.SIGHUP, None)  # Huey would restart the process; a worker may reload instead
        self._stop_flag_timeout = 0.5  # how often the main thread checks for a signal; Huey: ten times a second

    def _create_scheduler(self) -> Any:
        scheduler = super()._create_scheduler()
        scheduler.interval = SCHEDULER_INTERVAL
        return scheduler

    def start(self) -> None:
        try:
            super().start()
            self.huey.worker.start(self)
        except RuntimeError as error:
            if not is_without_threads(error):
                raise
            # Threads that did start wait for work, and hold nothing yet.
            logs.print_error(f"{NoThreads()}")
            sys.stderr.flush()
            os._exit(NoThreads.exit_code)

    def stop(self, graceful: bool = False) -> None:
        self.huey.worker.pause()
        storage = self.huey.storage if isinstance(self.huey.storage, SqliteQueueStorage) else None
        if storage is not None:
            storage.stop_blocking()
        super().stop(graceful=graceful)
        if storage is not None:
            storage.return_taken()
        self.huey.worker.stop()


class GuardedTask(TaskWrapper):
    """A task whose expected errors are one log line; the row that it claimed is due again when its lease expires.

    Huey would log a traceback and retry: `retries` belong to the waits that the row asks for (CancelExecution).
    """

    def __init__(self, huey: "QueueHuey", func: Callable[..., Any], **options: Any) -> None:
        @wraps(func)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                func(*args, **kwargs)
            except CsiError as error:
                log.error("task failed", task=func.__name__, key=args, error=str(error))
            except DatabaseError as error:
                if (fields := huey.worker.count_database_error(error)) is not None:
                    log.error("task failed: database error", task=func.__name__, key=args, **fields)

        super().__init__(huey, guarded, **options)


class QueueHuey(Huey):
    """Huey for wake-ups: unreadable messages are dropped and counted in the log; no results are stored."""

    worker: WorkerProcess
    """Set by the module that `huey_consumer` imports."""
    failing_since: float | None = None
    """When the queue first could not be read or written; None: it could when the maintenance loop last looked.
    Monotonic."""
    failed_at: float = -math.inf
    schedule_read_at: float = 0.0
    """When the scheduler of this process last read the schedule. Monotonic."""
    task_ended_at: float = 0.0
    """When a task of this process last ended, with or without an error. Monotonic; the start of the worker counts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.running = RunningTasks()
        self._counting = threading.Lock()
        self._dropped = 0
        self._drops_logged = float("-inf")

    def get_task_wrapper_class(self) -> type[TaskWrapper]:
        return GuardedTask

    def dequeue(self) -> Task | None:
        """The next task that has something to do. Unreadable messages are dropped: the maintenance loop finds the rows
        they were for."""
        task, dropped = None, 0
        try:
            while task is None and (data := self.storage.dequeue()) is not None:
                task = self._read(data)
                dropped += task is None
                if task is not None and self.worker.is_done(task):
                    task, self.task_ended_at = None, time.monotonic()
        except Exception:
            self.note_failure()
            raise
        self._count_dropped(dropped)
        return task

    def depth(self) -> int:
        """How many messages wait. Also notes that the queue works again after a failure: a queue file that is locked
        can still be read."""
        try:
            depth = int(self.pending_count())
            if self.failing_since is not None and isinstance(self.storage, SqliteQueueStorage):
                with self.storage.db(commit=True):
                    pass
        except Exception:
            self.note_failure()
            raise
        self.failing_since = None
        return depth

    def note_failure(self) -> None:
        self.failed_at = time.monotonic()
        if self.failing_since is None:
            self.failing_since = self.failed_at

    def has_just_failed(self) -> bool:
        """Each call to a locked queue waits for ten seconds, and all threads share its connection: the maintenance loop
        would be late with the heartbeat."""
        return time.monotonic() - self.failed_at < AFTER_FAILURE_SECONDS

    def _deserialize_all(self, messages: Sequence[bytes]) -> list[Task]:
        """The same for scheduled messages, and for callers that list the queue."""
        found = [self._read(data) for data in messages]
        self._count_dropped(sum(task is None for task in found))
        return [task for task in found if task is not None]

    def _read(self, data: bytes) -> Task | None:
        """None: the key did not sign the message, or no task has this name."""
        try:
            return self.deserialize_task(data)
        except Exception:  # noqa: BLE001 a message from outside may break in any way
            return None

    def _count_dropped(self, number: int) -> None:
        with self._counting:
            self._dropped += number
            if not self._dropped or time.monotonic() - self._drops_logged < DROPS_LOGGED_SECONDS:
                return
            number, self._dropped, self._drops_logged = self._dropped, 0, time.monotonic()
        log.warning("unreadable messages were dropped from the queue", messages=number)

    def drop_messages_of_1_0(self) -> None:
        """Empty a queue that holds messages of version 1.0.0, without opening one. Their rows are enqueued again.

        Called once, when the worker starts: dropped one by one, as each falls due, they would be many log lines.
        """
        try:
            found = [*self.storage.enqueued_items(), *self.storage.scheduled_items()]
            old = sum(map(is_from_1_0, found))
            if old:
                self.storage.flush_queue()
                self.storage.flush_schedule()
                log.warning("queue was emptied: messages of version 1.0.0 are not read", messages=len(found), old=old)
        except Exception as error:  # noqa: BLE001 an unreachable server: `dequeue` drops them later
            log.warning("queue could not be searched for messages of version 1.0.0", error=str(error)[:300])

    def enqueue_wakes(self, wakes: Sequence[Any], to_task: Callable[[Any], Task]) -> None:
        """Wake-ups with a time `at` are scheduled, the others share one commit. When that fails, the rows stay due."""
        if not wakes or self.has_just_failed():
            return
        try:
            if now := [to_task(wake) for wake in wakes if wake.at is None]:
                self.enqueue_many(now)
            for wake in wakes:
                if wake.at is not None:
                    task = to_task(wake)
                    # Huey's times are naive and mean UTC. `.s(eta=…)` would truncate it to whole seconds, and a task
                    # that runs before its row is due does nothing.
                    task.eta = datetime.datetime.fromtimestamp(wake.at, datetime.UTC).replace(tzinfo=None)
                    self.add_schedule(task)
        except Exception as error:  # noqa: BLE001 queue deleted or locked, server unreachable
            self.note_failure()
            if (counted := self.worker.errors.count("the queue takes no wake-ups")) is not None:
                fields = {"wakes": len(wakes), "error": str(error)[:300], **counted}
                log.warning("wake-ups could not be queued; the maintenance loop repeats them", **fields)

    def enqueue_many(self, tasks: Sequence[Task]) -> None:
        """Many tasks in one commit, where the storage can; one by one where not."""
        messages = [(self.serialize_task(task), task.priority or 0) for task in tasks]
        if hasattr(self.storage, "enqueue_many"):
            self.storage.enqueue_many(messages)
        else:
            for data, priority in messages:
                self.storage.enqueue(data, priority)

    def execute(self, task: Task, timestamp: Any = None) -> Any:
        self.running.begin(task.name, str(task.args[0] if task.args else ""))
        try:
            return super().execute(task, timestamp)
        finally:
            self.running.end(task.name)
            self.task_ended_at = time.monotonic()

    def read_schedule(self, timestamp: Any = None) -> list[Task]:
        self.schedule_read_at = time.monotonic()
        return list(super().read_schedule(timestamp))

    def read_periodic(self, timestamp: Any) -> list[Task]:
        """Of several workers the leader enqueues the periodic tasks."""
        return list(super().read_periodic(timestamp)) if self.worker.is_leader() else []

    def is_revoked(self, task: Task, timestamp: Any = None, peek: bool = True) -> bool:
        return False  # rows decide whether work is still wanted; this saves a read per task

    def delete(self, key: str) -> bool:
        return False  # only revocations and results are stored under keys, and we have neither

    def create_consumer(self, **options: Any) -> WorkerConsumer:
        """Called by huey_consumer only: here the process becomes the worker."""
        with exit_on_error():
            options["workers"] = self.worker.boot(threads=options.get("workers", 1))
        logs.take_over("huey")
        self.schedule_read_at = self.task_ended_at = time.monotonic()
        self.drop_messages_of_1_0()
        options["max_delay"] = min(options.get("max_delay", IDLE_SECONDS), IDLE_SECONDS)
        return WorkerConsumer(self, **options)
