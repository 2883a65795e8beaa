"""Drivers of databases and queues are loaded only where they are used."""

import sys

import pytest

from tasks.consumer import restart_without, unused_drivers


@pytest.mark.parametrize(
    ("database", "queue", "unused"),
    [
        ("/var/lib/csi/csi.db", "/var/lib/csi/queue.db", ["redis", "psycopg"]),
        ("postgresql://db/csi", "/var/lib/csi/queue.db", ["redis"]),
        ("/var/lib/csi/csi.db", "redis://host/0", ["psycopg"]),
        ("/var/lib/csi/csi.db", "postgresql://db/queue", ["redis"]),
        ("postgresql://db/csi", "rediss://host/0", []),
    ],
)
def test_what_an_installation_does_not_use(database, queue, unused):
    assert unused_drivers(database, queue) == unused


def test_a_process_that_huey_consumer_did_not_start_is_not_replaced(monkeypatch):
    monkeypatch.setattr("os.execv", lambda *_: pytest.fail("replaced"))
    restart_without(["sys"])


def test_the_process_of_huey_consumer_is_replaced_by_one_without_the_drivers(monkeypatch):
    calls = []
    monkeypatch.setattr("os.execv", lambda path, line: calls.append(line))
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/srv/csi/bin/huey_consumer", raising=False)
    monkeypatch.setattr(sys, "argv", ["huey_consumer", "huey_config.huey", "-w", "24"])
    restart_without(["sys"])
    restart_without(["not_loaded"])
    assert calls == [[sys.executable, "-P", "-m", "tasks.consumer", "sys", "huey_config.huey", "-w", "24"]]
