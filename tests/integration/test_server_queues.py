"""The queue's tables on PostgreSQL, where many workers start at the same instant."""

import threading

import psycopg

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
