"""Faults of a security and fault review, with real processes: damaged files, lost logs, lost queues."""

import os
import sqlite3
from contextlib import closing

import pytest

from tests.faults.oracle import Bounds
from tests.faults.test_storage import ask, sidecar
from tests.rigs.processes import Installation, installation, publish, read_process_ledgers, tracebacks, wait_until


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
