"""All threads of a process write through one connection to SQLite, one after the other."""

import threading

import pytest

from csi.store import counters, db
from csi.store.models import database


@pytest.fixture
def sqlite(tmp_path):
    db.open_database(str(tmp_path / "csi.db"))
    db.migrate()
    with db.connection():
        yield


def in_threads(action, count=6):
    threads = [threading.Thread(target=action) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_write_one_after_the_other_through_one_connection(sqlite):
    used = set()

    def work():
        with db.connection():
            for _ in range(20):
                with db.writing():
                    used.add(id(database.connection()))
                    counters.add("events", 1)

    in_threads(work)
    assert len(used) == 1
    assert counters.all_of("events") == {("", ""): 120.0}


def test_a_thread_reads_what_is_committed_while_another_writes(sqlite):
    counters.add("events", 1)
    seen = []

    def look():
        with db.connection():
            seen.append(counters.all_of("events"))

    with db.writing():
        counters.add("events", 1)
        in_threads(look, 1)
    assert seen == [{("", ""): 1.0}]
    assert counters.all_of("events") == {("", ""): 2.0}


def test_what_fails_inside_leaves_nothing_behind_and_the_next_one_writes(sqlite):
    with pytest.raises(RuntimeError), db.writing():
        counters.add("events", 1)
        with db.writing():  # part of the same transaction
            counters.add("events", 1)
        raise RuntimeError
    assert counters.all_of("events") == {}
    with db.writing():
        counters.add("events", 5)
    assert counters.all_of("events") == {("", ""): 5.0}


def test_a_connection_that_can_neither_commit_nor_roll_back_is_replaced(sqlite, monkeypatch):
    def broken():
        raise db.DatabaseError("disk I/O error")

    with monkeypatch.context() as patch, pytest.raises(db.DatabaseError), db.writing():
        counters.add("events", 1)
        patch.setattr(database.obj, "commit", broken)
        patch.setattr(database.obj, "rollback", broken)
    with db.writing():
        counters.add("events", 7)
    assert counters.all_of("events") == {("", ""): 7.0}
