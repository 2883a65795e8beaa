"""The ingester's worker: what it checks at boot, a pass of its maintenance loop, and its reload."""

import math
import signal
import threading
import time
from contextlib import suppress
from typing import Any

from huey.api import Task

from csi import systemd
from csi.config import loader
from csi.jobs import run_job
from csi.logs import log
from csi.pipeline import clock_check, quota_schedule, schedule
from csi.runtime import Runtime, Share, open_runtime
from csi.store import copy_tables, damage, db, leases, watches
from csi.store.db import DatabaseError
from csi.worker import alerting, leader, maintenance, reload
from csi.worker.maintenance import QueueHealth
from csi.worker.stall import HUNG_SECONDS
from csi.worker.unstored_alert import UnstoredAlert
from csi.worker_lock import hold_worker_lock
from tasks.dispatch import dispatch
from tasks.huey_worker import WorkerConsumer, WorkerProcess
from tasks.stall_watch import DATABASE_SECONDS, NOTIFIER_SECONDS, StallWatch, end_process
from tasks.thread_report import where_named

STUCK_SECONDS = 150.0
"""Every step ends within a minute, and half of the threads never read sources: with tasks in the queue, this long
without the end of any task means that none will end."""

SCHEDULER_SECONDS = 60.0
"""The scheduler reads the schedule several times a second; a locked queue may hold it up for a while."""

QUEUE_SECONDS = 30.0
"""A queue that cannot be used for so long is reported. A restart would not help, and the worker does not restart."""

WATCH_SECONDS = 5.0
STOPPED_SECONDS = 30.0
"""A thread that waits in vain for so long beyond its time was stopped together with the process."""

CERTAIN_SECONDS = 5.0
"""Database errors over so long are not the last one of a fault that is over."""
ALERT_SECONDS = 15.0
START_SECONDS = 60.0
"""A worker that has just started, or whose database works again, may not have written its heartbeat yet."""
FRESH_SECONDS = 30.0
"""After this long without a pass of the maintenance loop the heartbeat URL is not pinged."""

INGEST = "ingest_item"

_opening = threading.Lock()
_held: list[Runtime] = []


def runtime() -> Runtime:
    """One per process, until a reload replaces it. A task keeps the one that it began with."""
    with _opening:
        if not _held:
            _held.append(open_runtime(refuse_damaged=True))
        return _held[0]


class IngesterWorker(WorkerProcess):
    """The worker of the ingester. SIGHUP reloads its configuration."""

    interval_seconds = maintenance.INTERVAL_SECONDS

    def __init__(self) -> None:
        super().__init__()
        self._reload = threading.Event()
        self._started_at = 0.0
        self._began = time.monotonic()
        self._beat_pass_at = -math.inf
        self.stalls = StallWatch()
        self.passed_at = -math.inf
        self.notified_at = time.monotonic()
        """When the notifier last ended a round. Monotonic."""
        self._notifier: threading.Thread | None = None
        self._unstored = UnstoredAlert()

    def boot(self, threads: int) -> int:
        rt = runtime()
        rt.share = Share(threads, rt.streaming_threads())
        rt.stopping = self.stopping.is_set
        loader.require_delivery(rt.settings)
        alerting.check_targets(rt)
        if rt.settings.csi.state_dir.stat().st_mode & 0o002:
            log.warning("state directory can be written by every user of this machine: chmod 700 it")
        if not db.is_postgres():
            hold_worker_lock(rt.settings.csi.state_dir)
        copy_tables.take_into_use()
        clock_check.begin(rt)
        maintenance.recover(rt)
        schedule.sync_watches(rt)
        quota_schedule.wake_throttled(rt)
        schedule.warn_keyless(rt)
        schedule.warn_unusable(rt)
        schedule.warn_wrong_ids(rt)
        schedule.warn_refused_patterns(rt)
        quota_schedule.warn_infeasible(rt)
        alerting.warn_without_target(rt)
        reload.note_start(rt)
        self._started_at = rt.now()
        log.info(
            "worker starts",
            instance=rt.settings.csi.instance_id,
            watches=watches.active_count(),
            threads=rt.share.total,
        )
        return rt.share.total

    def start(self, consumer: WorkerConsumer) -> None:
        signal.signal(signal.SIGHUP, lambda number, frame: self._reload.set())
        self._began = self.looped_at = time.monotonic()
        super().start(consumer)
        self._start_notifier()
        threading.Thread(target=self._watch, name="StallWatch", daemon=True).start()

    def is_leader(self) -> bool:
        return leader.has_led(runtime())

    def pause(self) -> None:
        systemd.notify(systemd.STOPPING)
        super().pause()

    def release_leases(self) -> int:
        return leases.release_own(runtime().now())

    def is_done(self, task: Task) -> bool:
        """An item that another task took along. A task costs more than this look, and there is one for each item."""
        return task.name == INGEST and task.args[0] in runtime().process.ingested

    def drop_broken_connection(self) -> None:
        db.drop_broken_connection()

    def reopen_connections(self) -> None:
        db.close_writer()
        if not db.database.is_closed() and not db.database.in_transaction():
            db.database.close()

    def end_damaged(self, error: DatabaseError) -> None:
        if db.is_postgres():
            return  # the server's files are not ours to judge
        damage.note_damage(runtime().settings.csi.state_dir, str(error))
        with suppress(Exception):
            self._unstored.failed(runtime(), error)
        super().end_damaged(error)

    def run_pass(self, consumer: WorkerConsumer, number: int) -> None:
        if self._reload.is_set():
            # Between two passes, so that no pass uses half a configuration. After a database error: in the next
            # pass.
            systemd.notify(*systemd.reloading())
            try:
                fresh = reload.reload(runtime())
                self._reload.clear()
                with _opening:
                    _held[:] = [fresh]
            finally:
                systemd.notify(systemd.READY)
        rt, with_heartbeat = runtime(), time.monotonic() - self._beat_pass_at > maintenance.HEARTBEAT_SECONDS - 0.5
        if with_heartbeat:
            self._beat_pass_at = time.monotonic()
        depth = self._depth(consumer.huey)
        if with_heartbeat:
            self._look_for_stall(rt, consumer, depth)
        stall = self.stalls.stall
        queue = QueueHealth(depth, stall.reason if stall is not None and stall.ends_by_restart else None)
        dispatch(maintenance.run_pass(rt, queue, self._started_at, with_heartbeat=with_heartbeat))
        if leader.has_led(rt) and queue.is_usable:
            if with_heartbeat:
                run_job.requeue_failed_and_stuck(rt)
            dispatch(run_job.wake_due(rt))
        if with_heartbeat and queue.is_usable:
            self.passed_at, self.database_failing_since = time.monotonic(), None
            systemd.notify(systemd.READY, systemd.ALIVE, systemd.status(f"{depth} wake-ups in the queue"))

    def is_well(self) -> bool:
        """The maintenance loop finished a pass lately, and the consumer's threads made progress."""
        return time.monotonic() - self.passed_at < FRESH_SECONDS

    def _look_for_stall(self, rt: Runtime, consumer: WorkerConsumer, depth: int | None) -> None:
        now, failing_since = time.monotonic(), consumer.huey.failing_since
        if failing_since is not None:
            if now - failing_since > QUEUE_SECONDS:
                self.stalls.set("the task queue cannot be read or written", ends_by_restart=False)
        else:
            found = standstill(consumer, depth or 0) or self.stalls.find_stall(rt, consumer, self._started_at)
            self.stalls.set(found)
        has_polled = rt.process.poll_ended_at is not None
        self.stalls.store(rt, is_proven=has_polled or now - self._began > HUNG_SECONDS + START_SECONDS)

    def _watch(self) -> None:
        """A thread of its own that never writes: it also notices a maintenance loop that hangs in a statement."""
        looked_at = time.monotonic()
        while not self.stopping.wait(WATCH_SECONDS):
            looked_at, seconds = time.monotonic(), time.monotonic() - looked_at
            if seconds > WATCH_SECONDS + STOPPED_SECONDS:
                # The whole process was stopped (SIGSTOP, a paused machine): no thread could make progress, and
                # none hangs
                log.warning("worker was stopped and continues", seconds=round(seconds))
                self.looped_at = self.notified_at = time.monotonic()
                self.stalls.set(None)
            self._report_database_error()
            self._replace_hung_notifier()
            if reason := self.stalls.must_end(self.looped_at, self.database_failed_at):
                end_process(reason, threading.Thread(target=self.stop, name="Release", daemon=True))

    def _report_database_error(self) -> None:
        """Without waiting for the database, where the notifier may wait behind all other threads for minutes."""
        error, since, now = self.database_error, self.database_failing_since, time.monotonic()
        if error is None or since is None or self.database_failed_at - since < CERTAIN_SECONDS:
            return
        if now - self.database_failed_at < DATABASE_SECONDS:
            rt = runtime()
            self._unstored.failed(rt, error, since=rt.now() - (now - since))

    def _replace_hung_notifier(self) -> None:
        """The thread that hangs stays behind; it ends itself if it ever comes back."""
        seconds = time.monotonic() - max(self.notified_at, self.database_failed_at)
        if seconds > NOTIFIER_SECONDS:
            place = where_named("Notifier")
            log.error("notifier hangs; another thread takes its place", seconds=round(seconds), where=place)
            self._start_notifier()

    def _start_notifier(self) -> None:
        self.notified_at = time.monotonic()
        self._notifier = threading.Thread(target=self._notify, name="Notifier", daemon=True)
        self._notifier.start()

    def _notify(self) -> None:
        """A thread of its own beside the maintenance loop: services and the heartbeat URL may be slow."""
        next_ping = 0.0
        while not self.stopping.wait(ALERT_SECONDS if next_ping else 1.0):
            if threading.current_thread() is not self._notifier:
                return
            rt = runtime()
            try:
                self._evaluate_alerts(rt)
            except DatabaseError as error:
                self._unstored.failed(rt, error)
                if (fields := self.count_database_error(error)) is not None:
                    log.error("alerts could not be evaluated; retrying", **fields)
            except Exception as error:  # noqa: BLE001 an error of the notification library
                if (counted := self.errors.count(f"alerts: {type(error).__name__}")) is not None:
                    log.exception("alerts could not be evaluated; retrying", **counted)
            if time.monotonic() >= next_ping and self.is_well():
                alerting.ping(rt)
                next_ping = time.monotonic() + rt.settings.notify.heartbeat_seconds
            self.notified_at = time.monotonic()

    def _evaluate_alerts(self, rt: Runtime) -> None:
        if self._unstored.is_failing:
            alerting.note_round(rt, self._started_at)  # raises while the database cannot be written
            self.database_failing_since = None
            self._unstored.worked(rt)
        began = max(self._began, self.database_failed_at)
        is_working = self.is_well() or time.monotonic() - began < START_SECONDS
        alerting.evaluate(rt, is_worker=is_working, is_notifier=True)
        alerting.note_round(rt, self._started_at)

    def _depth(self, huey: Any) -> int | None:
        """How many wake-ups are in the queue. None: it cannot be read, and the worker threads wait for it, too."""
        if huey.has_just_failed():
            return None
        try:
            return int(huey.depth())
        except Exception as error:  # noqa: BLE001 sqlite3, redis and psycopg have no error in common
            if (counted := self.errors.count("the queue cannot be read or written")) is not None:
                log.warning("queue cannot be read or written; due rows wait for it", error=str(error)[:300], **counted)
            return None


def standstill(consumer: WorkerConsumer, depth: int) -> str | None:
    """Why the tasks of this process make no progress; the heartbeat is withheld then. None: they do."""
    now = time.monotonic()
    if not consumer.scheduler.is_alive():
        return "the scheduler's thread is gone"
    if now - consumer.huey.schedule_read_at > SCHEDULER_SECONDS:
        return "the scheduler hangs"
    if not all(thread.is_alive() for _, thread in consumer.worker_threads):
        return "a worker's thread is gone"
    if depth > 0 and now - consumer.huey.task_ended_at > STUCK_SECONDS:
        return "tasks are queued but none completes"
    return None
