"""The queue file: the most important message first, many taken in one commit, none lost at an orderly stop."""

import datetime
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.huey_worker import QueueHuey
from tasks.sqlite_queue import AT_ONCE, SqliteQueueStorage


@pytest.fixture
def storage(tmp_path):
    return SqliteQueueStorage("csi", filename=str(tmp_path / "queue.db"))


def put(storage, *messages):
    storage.enqueue_many([(data, priority) for data, priority in messages])


def test_the_most_important_comes_first_and_equals_in_order(storage):
    put(storage, (b"low", 10), (b"first", 30), (b"second", 30), (b"high", 50))
    assert [storage.dequeue() for _ in range(4)] == [b"high", b"first", b"second", b"low"]


def test_what_arrives_later_overtakes_what_was_taken_already(storage):
    put(storage, *((f"item {number}".encode(), 10) for number in range(3)))
    assert storage.dequeue() == b"item 0"
    put(storage, (b"urgent", 50))
    assert [storage.dequeue() for _ in range(3)] == [b"urgent", b"item 1", b"item 2"]


def test_many_are_taken_at_once_and_counted_as_waiting(storage):
    put(storage, *((str(number).encode(), 10) for number in range(AT_ONCE + 5)))
    assert storage.dequeue() == b"0"
    assert storage.queue_size() == AT_ONCE + 4
    assert [storage.dequeue() for _ in range(AT_ONCE + 4)] == [str(n).encode() for n in range(1, AT_ONCE + 5)]


def test_an_orderly_stop_returns_messages_that_no_thread_began(storage, tmp_path):
    put(storage, (b"a", 10), (b"b", 50), (b"c", 10))
    assert storage.dequeue() == b"b"
    storage.return_taken()
    other = SqliteQueueStorage("csi", filename=str(tmp_path / "queue.db"))
    assert [other.dequeue(), other.dequeue()] == [b"a", b"c"]


def test_a_file_that_was_empty_a_moment_ago_gives_all_that_came_since(storage, monkeypatch):
    monkeypatch.setattr("tasks.sqlite_queue.WAIT_SECONDS", 0.01)
    assert storage.dequeue() is None
    put(storage, *((str(number).encode(), 10) for number in range(2 * AT_ONCE + 1)))
    assert [storage.dequeue() for _ in range(2 * AT_ONCE + 2)] == [
        *(str(number).encode() for number in range(2 * AT_ONCE + 1)),
        None,
    ]


def test_an_empty_file_is_not_asked_again_at_once_by_each_of_many_threads(storage, monkeypatch):
    monkeypatch.setattr("tasks.sqlite_queue.WAIT_SECONDS", 0.01)
    asked = []
    storage.sql = lambda sql, *_, **__: asked.append(sql) or []
    assert [storage.dequeue() for _ in range(5)] == [None] * 5
    assert len(asked) == 1


def test_a_message_of_another_process_is_found_at_the_next_look(storage, tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.sqlite_queue.WAIT_SECONDS", 0.01)
    monkeypatch.setattr("tasks.sqlite_queue.EMPTY_FILE_READ_SECONDS", 0.0)
    assert storage.dequeue() is None
    put(SqliteQueueStorage("csi", filename=str(tmp_path / "queue.db")), (b"from outside", 10))
    assert storage.dequeue() == b"from outside"


def test_waiting_threads_return_when_the_process_ends(storage, monkeypatch):
    monkeypatch.setattr("tasks.sqlite_queue.WAIT_SECONDS", 600)
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(storage.dequeue) for _ in range(4)]
        storage.stop_blocking()
        assert [one.result(timeout=30) for one in waiting] == [None] * 4


def test_scheduled_messages_are_read_once_when_they_are_due(storage):
    now = datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)
    storage.add_to_schedule(b"later", now + datetime.timedelta(minutes=1))
    assert storage.read_schedule(now) == []
    assert storage.read_schedule(now + datetime.timedelta(minutes=2)) == [b"later"]
    assert storage.read_schedule(now + datetime.timedelta(minutes=3)) == []


def test_an_idle_worker_does_not_write(storage, tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.sqlite_queue.WAIT_SECONDS", 0.01)
    put(storage, (b"a", 10))
    storage.dequeue()
    log = tmp_path / "queue.db-wal"
    before = log.stat().st_size
    assert storage.dequeue() is None
    assert log.stat().st_size == before


def test_a_folder_in_the_place_of_the_queue_is_refused_and_stays_where_it_is(tmp_path):
    folder = tmp_path / "queue.db"
    (folder / "precious").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        SqliteQueueStorage("csi", filename=str(folder))
    assert [path.name for path in tmp_path.iterdir()] == ["queue.db"]
    assert (folder / "precious").is_dir()


def test_a_locked_queue_can_be_read_and_still_counts_as_failing(tmp_path):
    file = str(tmp_path / "queue.db")
    huey = QueueHuey("csi", storage_class=SqliteQueueStorage, filename=file, timeout=0.01, results=False)
    assert (huey.depth(), huey.failing_since) == (0, None)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    huey.note_failure()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        huey.depth()
    assert huey.failing_since is not None
    other.execute("ROLLBACK")
    assert (huey.depth(), huey.failing_since) == (0, None)
    other.close()


def test_a_failing_disk_is_no_reason_to_replace_the_file(storage, tmp_path, monkeypatch):
    """Every statement fails, and a new file would fail like the old one."""
    connect = SqliteQueueStorage._create_connection

    class FailingConnection:
        """A connection on a disk that reports an error at every write."""

        def __init__(self, real):
            self._real = real

        def cursor(self):
            raise sqlite3.OperationalError("disk I/O error")

        def close(self):
            self._real.close()

    storage.close()
    monkeypatch.setattr(SqliteQueueStorage, "_create_connection", lambda self: FailingConnection(connect(self)))
    for _ in range(3):
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            storage.enqueue(b"a")
    assert [path.name for path in tmp_path.glob("*broken*")] == []
    monkeypatch.setattr("tasks.sqlite_queue.BROKEN_SECONDS", 0.0)
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):  # and no recursion
        storage.enqueue(b"a")
    assert len(list(tmp_path.glob("*broken*"))) == 1, "the disk takes other files, so it is this one"
    monkeypatch.undo()
    storage.close()
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        storage.enqueue(b"a")
    storage.enqueue(b"b")
    assert storage.dequeue() == b"b"
