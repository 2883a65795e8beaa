"""Faults of a security and fault review, with real processes: damaged files, lost logs, lost queues."""

import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.oracle import Bounds
from tests.faults.test_storage import ask, sidecar
from tests.rigs.processes import (
    Installation,
    Redis,
    installation,
    publish,
    read_process_ledgers,
    tracebacks,
    wait_until,
)


def damage_running(box: Installation) -> None:
    """Overwrite the root page of an index in the file. Then another connection writes a row, so that the worker's
    connections drop the pages that they have in memory."""
    with closing(sqlite3.connect(box.state / "csi.db", isolation_level=None, timeout=10)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        sql = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_dedupe_keys_1'"
        ((page,),) = connection.execute(sql).fetchall()
        with (box.state / "csi.db").open("r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(os.urandom(4096))
            os.fsync(file.fileno())
        connection.execute("UPDATE watches SET note = note")


@pytest.mark.faults
def test_case_112_damaged_pages(case, tmp_path, seed):
    """The first error ends the worker with code 7 and one sentence; health says it at once; a restart does not write;
    the repair saves the rows, and what was lost is read again."""
    with installation(tmp_path) as box, sidecar(box) as port:
        worker = box.start()
        total = publish(box, 12)
        box.wait_for_delivered(total)
        damage_running(box)
        total += publish(box, 6)
        box.wait_for(lambda: worker.poll() is not None, 60)
        status, _ = ask(box, port, "readyz")
        again = box.start()
        box.wait_for(lambda: again.poll() is not None, 30)
        repaired = box.csi("db", "repair", "--yes")
        third = box.start()
        box.wait_for_delivered(total, seconds=90)
        healthy = wait_until(lambda: ask(box, port, "readyz")[0] == 200, 60)
        numbers = {"exit": worker.returncode, "restart": again.returncode, "readyz": status, "healed": int(healthy)}
        case.close(
            read_process_ledgers(box),
            Bounds(in_flight_at_crashes=total, changed=total),
            **numbers,
            tracebacks=tracebacks(box),
            seed=seed,
        )
        sentences = [line for line in box.log.read_text().splitlines() if line.startswith("csi: the database")]
        assert (worker.returncode, again.returncode, status, repaired.returncode) == (7, 7, 503, 0), repaired.stderr
        assert (third.poll(), healthy, tracebacks(box), len(sentences)) == (None, True, 0, 2)


@pytest.fixture
def redis_server():
    server = Redis()
    yield server
    server.kill()


def readyz_names(box: Installation, port: int, word: str) -> bool:
    status, body = ask(box, port, "readyz")
    return status == 503 and word in str(body)


def cpu_seconds(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


LOST_SECONDS = 100.0
"""Longer than a stall lasts before it is reported."""


@pytest.mark.faults
@pytest.mark.parametrize("queue", ["redis", "hung_redis", "folder"])
def test_case_117_the_queue_is_away(case, tmp_path, redis_server, seed, queue):
    """Redis stops, or takes connections and never answers, or a folder takes the place of the queue's file: one line a
    minute, little CPU, `/readyz` names the queue, and everything goes on when the queue is back."""
    url = None if queue == "folder" else redis_server.url
    with installation(tmp_path, queue=url) as box, sidecar(box) as port:
        worker = box.start(CSI_QUEUE_SECRET="9c" * 32)
        total = publish(box, 12)
        box.wait_for_delivered(total)
        if queue == "redis":
            redis_server.kill()
        elif queue == "hung_redis":
            redis_server.process.send_signal(signal.SIGSTOP)
        else:
            for file in box.state.glob("queue.db*"):
                file.unlink()
            (box.state / "queue.db").mkdir()
        size, spent = box.log.stat().st_size, cpu_seconds(worker.pid)
        total += publish(box, 12)
        began = time.monotonic()
        named = wait_until(lambda: readyz_names(box, port, "queue"), LOST_SECONDS)
        wait_until(lambda: False, max(0.0, 60 - (time.monotonic() - began)))
        minutes = (time.monotonic() - began) / 60
        megabytes = (box.log.stat().st_size - size) / 1e6 / minutes
        spent = (cpu_seconds(worker.pid) - spent) / minutes
        if queue == "redis":
            redis_server.start()
        elif queue == "hung_redis":
            redis_server.process.send_signal(signal.SIGCONT)
        else:
            (box.state / "queue.db").rmdir()
        box.wait_for_delivered(total, seconds=90)
        healthy = wait_until(lambda: ask(box, port, "readyz")[0] == 200, 90)
        numbers = {"log": f"{megabytes:.2f}MB/min<=1", "cpu": f"{spent:.0f}s/min<=15", "named": int(named)}
        case.close(read_process_ledgers(box), Bounds(in_flight_at_crashes=total), **numbers, seed=seed)
        assert (worker.poll(), named, healthy) == (None, True, True)
        assert megabytes < 1, "I10"
        assert spent < 15


@pytest.mark.faults
@pytest.mark.parametrize("lost", ["directory", "database"])
def test_case_117_the_state_is_removed_under_a_running_worker(case, tmp_path, lost):
    """What was in it is gone. The worker stays, stores nothing into an empty file, and says little but why; a worker
    that starts afterwards works."""
    with installation(tmp_path) as box, sidecar(box) as port:
        worker = box.start()
        box.wait_for_delivered(publish(box, 12))
        if lost == "directory":
            shutil.rmtree(box.state)
        else:
            for file in box.state.glob("csi.db*"):
                file.unlink()
        size, began = box.log.stat().st_size, time.monotonic()
        wait_until(lambda: False, 60)
        minutes = (time.monotonic() - began) / 60
        megabytes = (box.log.stat().st_size - size) / 1e6 / minutes
        status, body = ask(box, port, "readyz")
        word = "cannot be opened" if lost == "directory" else "was removed"
        ends = worker.poll()
        worker.kill()
        worker.wait()
        box.start()
        healthy = wait_until(lambda: ask(box, port, "readyz")[0] == 200, 90)
        case.note(log=f"{megabytes:.2f}MB/min<=1", readyz=status, healthy=int(healthy), tracebacks=tracebacks(box))
        assert (ends, status, word in str(body), healthy) == (None, 503, True, True), body
        assert megabytes < 1, "I10"
