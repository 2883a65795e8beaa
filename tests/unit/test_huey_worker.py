"""The skeleton of both workers: guarded tasks, wake-ups, the maintenance loop, exit codes."""

import logging
import threading
from types import SimpleNamespace

import pytest
from huey import MemoryHuey
from huey.exceptions import CancelExecution

from csi.errors import ConfigError, StoreError
from csi.sql import DatabaseError
from tasks.huey_worker import QueueHuey, RepeatedRecords, WorkerProcess, exit_on_error
from tasks.serializer import JsonSerializer


class MemoryWorkerQueue(QueueHuey, MemoryHuey):
    """The workers' Huey on a queue in memory."""


class ScriptedWorker(WorkerProcess):
    """Every pass raises or returns as scripted; the last one stops the loop."""

    interval_seconds = 0.0

    def __init__(self, *passes):
        super().__init__()
        self.passes, self.numbers, self.dropped, self.done = list(passes), [], 0, set()

    def boot(self, threads):
        raise ConfigError("csi.queue: not usable")

    def run_pass(self, consumer, number):
        self.numbers.append(number)
        error = self.passes.pop(0)
        if not self.passes:
            self.pause()
        if error is not None:
            raise error

    def is_done(self, task):
        return task.args[0] in self.done

    def release_leases(self):
        raise OSError("disk full")

    def drop_broken_connection(self):
        self.dropped += 1


@pytest.fixture
def huey():
    made = MemoryWorkerQueue("csi", results=False, utc=True, serializer=JsonSerializer("a-secret", "csi"))
    made.worker = ScriptedWorker()
    return made


@pytest.fixture
def lines(monkeypatch):
    found = []
    for level in ("warning", "error", "exception", "info"):
        monkeypatch.setattr(f"tasks.huey_worker.log.{level}", lambda words, **keys: found.append((words, keys)))
    return found


@pytest.mark.parametrize(
    ("error", "words", "dropped"),
    [(StoreError("no row"), "task failed", 0), (DatabaseError("no row"), "task failed: database error", 1)],
)
def test_an_expected_error_of_a_task_is_one_line_and_no_retry(huey, lines, error, words, dropped):
    @huey.task(retries=2)
    def deliver_batch(batch_id):
        raise error

    huey.enqueue_many([deliver_batch.s(7)])
    huey.execute(huey.dequeue())
    ((said, fields),) = lines
    assert (said, fields["task"], fields["key"], fields["error"]) == (words, "deliver_batch", (7,), "no row")
    assert (huey.worker.dropped, huey.pending_count(), huey.scheduled_count()) == (dropped, 0, 0)
    assert huey.task_ended_at > 0


def test_wake_ups_are_queued_or_scheduled_with_fractions_of_a_second(huey):
    @huey.task()
    def poll_watch(key):
        pass

    wakes = [SimpleNamespace(key=1, at=None), SimpleNamespace(key=2, at=4102444800.75)]
    huey.enqueue_wakes(wakes, lambda wake: poll_watch.s(wake.key))
    assert [task.args for task in huey.pending()] == [(1,)]
    assert [task.eta.isoformat() for task in huey.scheduled()] == ["2100-01-01T00:00:00.750000"]


def test_a_queue_that_takes_no_wake_ups_is_one_warning(huey, lines):
    def unreachable(wake):
        raise OSError("connection refused")

    huey.enqueue_wakes([SimpleNamespace(at=None)], unreachable)
    words = "wake-ups could not be queued; the maintenance loop repeats them"
    assert lines == [(words, {"wakes": 1, "error": "connection refused"})]


def test_a_queue_that_could_not_be_written_is_left_alone_for_seconds(huey, lines):
    def unreachable(wake):
        raise OSError("connection refused")

    huey.enqueue_wakes([SimpleNamespace(at=None)], unreachable)
    assert huey.failing_since is not None
    huey.enqueue_wakes([SimpleNamespace(at=None)], lambda wake: pytest.fail("called too early"))
    huey.failed_at -= 6

    @huey.task()
    def poll_watch(key):
        pass

    huey.enqueue_wakes([SimpleNamespace(at=None)], lambda wake: poll_watch.s(1))
    assert (huey.depth(), huey.failing_since) == (1, None)


def test_an_ordinary_retry_is_no_warning_of_huey(huey, caplog):
    @huey.task(retries=1)
    def deliver_batch(key):
        raise CancelExecution(retry=True)

    with caplog.at_level(logging.INFO, logger="huey"):
        huey.execute(deliver_batch.s(1))
    assert huey.pending_count() == 1
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_maintenance_loop_survives_an_error(lines):
    worker = ScriptedWorker(None, OSError("database or disk is full"), None)
    thread = threading.Thread(target=worker._maintain, args=(None,), daemon=True)
    thread.start()
    thread.join(10)
    assert (worker.numbers, worker.dropped, thread.is_alive()) == ([0, 1, 2], 1, False)
    assert lines == [("maintenance failed; retrying", {"error": "OSError: database or disk is full"})]


def test_tasks_and_loop_that_fail_for_one_reason_are_one_line_a_minute(huey, lines):
    @huey.task()
    def deliver_batch(batch_id):
        raise DatabaseError(f"database or disk is full (batch {batch_id})")

    huey.enqueue_many([deliver_batch.s(number) for number in range(200)])
    while (task := huey.dequeue()) is not None:
        huey.execute(task)
    huey.worker.passes = [DatabaseError("database or disk is full"), None]
    huey.worker._maintain(None)
    ((words, fields),) = lines
    assert (words, fields["cause"], fields["key"]) == ("task failed: database error", "the disk is full", (0,))
    assert "free disk space" in fields["remedy"]
    assert huey.worker.database_failed_at > 0


def test_an_error_of_huey_is_logged_once_a_minute():
    def record():
        error = OSError("disk I/O error")
        values = ("huey.consumer.Worker", logging.ERROR, __file__, 1, "Error reading from %s", ("queue",))
        return logging.LogRecord(*values, (type(error), error, None))

    limited = RepeatedRecords()
    assert [limited.filter(record()) for _ in range(100)] == [True] + [False] * 99
    limited._errors._steady = lambda: 1e9
    assert limited.filter(last := record())
    assert last.getMessage() == "Error reading from queue (repeated 100 times)"


def test_leases_that_cannot_be_released_do_not_stop_the_shutdown(lines):
    ScriptedWorker().stop()
    assert [words for words, _ in lines] == ["leases could not be released"]


def test_an_error_at_boot_is_one_sentence_and_its_exit_code(huey, capsys):
    with pytest.raises(SystemExit) as ended:
        huey.create_consumer(workers=1)
    assert (ended.value.code, capsys.readouterr().err) == (ConfigError.exit_code, "csi: csi.queue: not usable\n")


def test_other_errors_at_start_keep_their_traceback():
    with pytest.raises(ZeroDivisionError), exit_on_error():
        raise ZeroDivisionError


def test_only_the_leader_enqueues_periodic_tasks(huey, monkeypatch):
    @huey.periodic_task(lambda moment: True)
    def tick():
        pass

    assert len(huey.read_periodic(None)) == 1
    monkeypatch.setattr(huey.worker, "is_leader", lambda: False)
    assert huey.read_periodic(None) == []


def test_a_task_whose_work_is_done_is_dropped_without_being_run(huey):
    @huey.task()
    def ingest(number):
        raise AssertionError

    huey.enqueue_many([ingest.s(number) for number in (1, 2, 3)])
    huey.worker.done = {1, 2}
    assert huey.dequeue().args == (3,)
    assert huey.task_ended_at > 0, "a queue that only has such tasks makes progress"
    assert huey.dequeue() is None
