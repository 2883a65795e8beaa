"""The queue's tables on PostgreSQL, where many workers start at the same instant."""

import threading

import psycopg
import pytest

from csi.pipeline import catalog_entry
from csi.store import db
from tasks.queue import open_storage

STARTS = 12


def test_workers_that_start_together_create_the_tables_once(postgres_url):
    """Huey's own storage raises `duplicate key value violates unique constraint` in some of them."""
    for _ in range(3):
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS huey_kv, huey_schedule, huey_task, huey_counter")
        gate, failed = threading.Barrier(STARTS), list[Exception]()

        def start(gate=gate, failed=failed) -> None:
            gate.wait()
            try:
                open_storage(postgres_url).close()
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=start) for _ in range(STARTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []


def test_a_role_that_may_not_create_tables_uses_those_that_exist(postgres_url):
    open_storage(postgres_url).close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS queue_user")
        connection.execute("CREATE ROLE queue_user LOGIN")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO queue_user")
        connection.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO queue_user")
    storage = open_storage(postgres_url.replace("postgres:", "queue_user:", 1).replace("//postgres@", "//queue_user@"))
    storage.enqueue(b"x")
    assert storage.queue_size() == 1
    storage.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP OWNED BY queue_user")
        connection.execute("DROP ROLE queue_user")


@pytest.mark.parametrize("server", ["redis_url", "postgres_url"])
def test_many_messages_are_one_request_and_come_out_by_priority_then_in_order(request, server, monkeypatch):
    storage = open_storage(request.getfixturevalue(server))
    storage.enqueue(b"huey's own", 10)
    monkeypatch.setattr(storage, "enqueue", lambda *_: pytest.fail("one request for each message"))
    storage.enqueue_many([*((f"item {number}".encode(), 10) for number in range(20)), (b"urgent", 50), (b"last", 0)])
    assert storage.queue_size() == 23
    found = [bytes(storage.dequeue()) for _ in range(23)]
    assert found == [b"urgent", b"huey's own", *(f"item {number}".encode() for number in range(20)), b"last"]


def test_the_channels_of_many_events_are_asked_for_in_one_statement(tmp_path, monkeypatch):
    db.open_database(str(tmp_path / "csi.db"))
    db.migrate()
    asked, run = [], db.sql_database.run
    monkeypatch.setattr(db.sql_database, "run", lambda sql, *values: asked.append(sql) or run(sql, *values))
    subject = {"platform": "youtube", "published_at": "2026-02-22T12:00:00Z"}
    videos = [subject | {"video_id": f"v{number}", "channel_id": f"UC{number % 3}"} for number in range(50)]
    with db.connection():
        catalog_entry.enter([EventWith(subject) for subject in videos], 1.0)
        catalog_entry.enter([], 1.0)
    assert len([sql for sql in asked if "FROM channels" in sql]) == 1


class EventWith:
    """An event, as far as the catalogue reads it."""

    def __init__(self, subject):
        self.subject = subject
