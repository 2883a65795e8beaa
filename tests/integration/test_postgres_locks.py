"""Locks on a real PostgreSQL: what a process that is stopped inside a transaction means for the others."""

import threading
import time

import pytest

from csi import sql
from csi.store import db


def test_a_process_that_is_stopped_in_a_transaction_keeps_no_lock(postgres_url, monkeypatch):
    monkeypatch.setattr(sql.PostgresWithTimeLimit, "MAX_IDLE_SECONDS", 1)
    db.open_database(postgres_url)
    with db.connection():
        db.run("CREATE TABLE held (id INTEGER)")
        db.run("INSERT INTO held VALUES (1)")
    waited = []

    def update_beside_it() -> None:
        with db.connection():
            began = time.monotonic()
            db.run("UPDATE held SET id = 2")
            waited.append(time.monotonic() - began)

    with pytest.raises(db.DatabaseError), db.connection(), db.writing():
        db.run("UPDATE held SET id = 3")
        beside = threading.Thread(target=update_beside_it)
        beside.start()
        beside.join(20)
        db.run("UPDATE held SET id = 4")
    assert 0.1 < waited[0] < 15
