"""Case 114: writes that fail, are short or torn, in worker, sidecar and receiver; the disk recovers later."""

import signal
import sys
import time

import pytest

from csi.receiver.app import INGEST_PATH
from tests.faults.oracle import Bounds
from tests.faults.test_storage import ask, sidecar
from tests.rigs.failing_disk import FailingDisk, Mode
from tests.rigs.processes import (
    SECRET,
    free_port,
    installation,
    publish,
    read_process_ledgers,
    tracebacks,
    wait_until,
)

FAILING_SECONDS = 45.0
"""Longer than a worker may be silent."""


@pytest.mark.faults
@pytest.mark.parametrize(
    ("mode", "percent"), [("fail", 100), ("fail", 5), ("short", 50), ("torn", 5), ("torn", 100), ("sync", 100)]
)
def test_case_114_writes_of_the_worker_fail(case, tmp_path, seed, mode: Mode, percent: int):
    """A worker that ended or was stopped is started again at once; nothing is lost, and every end is one sentence."""
    disk = FailingDisk(tmp_path, tmp_path / "state")
    with installation(tmp_path) as box, sidecar(box, **disk.env) as port:
        worker, ends = box.start(**disk.env), []
        total = publish(box, 10)
        box.wait_for_delivered(total)
        disk.fail(mode, percent=percent)
        began, said, stopped = time.monotonic(), False, False
        while time.monotonic() - began < FAILING_SECONDS:
            total += publish(box, 3)
            said = said or ask(box, port, "readyz")[0] == 503
            if not stopped and time.monotonic() - began > FAILING_SECONDS * 2 / 3:
                stopped = True
                worker.send_signal(signal.SIGTERM)
            wait_until(lambda: False, 1)
            if worker.poll() is not None:
                ends.append(worker.returncode)
                worker = box.start(**disk.env)
        hits = disk.hits
        disk.heal()
        began = time.monotonic()
        wait_until(lambda: worker.poll() is not None, 2)
        if worker.poll() is not None:
            ends.append(worker.returncode)
            worker = box.start(**disk.env)
        box.wait_for_delivered(total, seconds=90)
        box.wait_for(lambda: ask(box, port, "readyz")[0] == 200, seconds=90)
        back, sound = time.monotonic() - began, box.rows("PRAGMA integrity_check")
        case.close(
            read_process_ledgers(box),
            Bounds(in_flight_at_crashes=total),
            hits=hits,
            said=int(said),
            ends="/".join(map(str, ends)) or "-",
            back=f"{back:.0f}s<=90s",
            tracebacks=tracebacks(box),
            seed=seed,
        )
        assert hits > 0
        assert set(ends) <= {0, 7}, f"{ends}"
        assert sound == [("ok",)]
        assert tracebacks(box) == 0
        # A failed fsync of a checkpoint leaves everything in the write-ahead log: nothing has to wait for it.
        assert said or percent < 100 or mode == "sync"


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["fail", "short", "torn"])
def test_case_114_each_write_of_a_start_fails_once(case, tmp_path, seed, mode: Mode):
    """One sentence and code 7, or a start that does not mind; the next start finishes what was begun."""
    codes, spoken = [], 0
    with installation(tmp_path) as box:
        disk = FailingDisk(tmp_path, box.state)
        disk.fail(mode, percent=1)
        assert box.csi("db", "migrate", **disk.env).returncode in (0, 7)
        total = max(disk.writes, 100)
        for nth in [1, 2, 3, 5, 8, 13, *range(14 + seed % 7, total, total // 4)]:
            for path in box.state.glob("*"):
                path.unlink()
            disk.fail_once(mode, nth)
            done = box.csi("db", "migrate", **disk.env)
            codes.append(done.returncode)
            spoken += done.returncode == 7 and len(done.stderr.strip().splitlines()) == 1
            assert "Traceback" not in done.stderr, done.stderr
            disk.heal()
            again = box.csi("db", "migrate", **disk.env)
            assert again.returncode == 0, again.stderr
            assert box.rows("PRAGMA integrity_check") == [("ok",)]
        case.note(starts=len(codes), refused=codes.count(7), sentences=spoken, seed=seed)
        assert set(codes) <= {0, 7}
        assert spoken == codes.count(7)
        assert mode == "short" or spoken > 0


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["fail", "torn"])
def test_case_114_writes_of_the_receiver_fail(case, tmp_path, seed, mode: Mode):
    """The receiver answers 503, so that the sender keeps its events; both recover by themselves."""
    port = free_port()
    with installation(tmp_path) as box:
        store = tmp_path / "receiver"
        store.mkdir()
        disk = FailingDisk(tmp_path, store)
        box.ua_url = f"http://127.0.0.1:{port}{INGEST_PATH}"
        books = ["--db", str(store / "receiver.db"), "--ledger", str(tmp_path / "received.jsonl")]
        line = [sys.executable, "-m", "csi.cli.main", "receiver", "--port", str(port), *books]
        receiver = box.start(*line, UA_SIGNALS_INGEST_SHARED_SECRET=SECRET, **disk.env)
        box.start()
        total = publish(box, 10)
        box.wait_for_delivered(total)
        disk.fail(mode)
        total += publish(box, 10)
        failing = "SELECT COUNT(*) FROM delivery_attempts WHERE status >= 500"
        box.wait_for(lambda: box.rows(failing)[0][0] > 0, 60)
        statuses = sorted(
            {row[0] for row in box.rows("SELECT DISTINCT status FROM delivery_attempts WHERE status <> 200")}
        )
        hits = disk.hits
        disk.heal()
        began = time.monotonic()
        box.wait_for_delivered(total, seconds=120)
        case.close(
            read_process_ledgers(box),
            Bounds(in_flight_at_crashes=10, timed=False),
            hits=hits,
            statuses="/".join(map(str, statuses)),
            back=f"{time.monotonic() - began:.0f}s<=90s",
            tracebacks=tracebacks(box),
            seed=seed,
        )
        assert (receiver.poll(), statuses, tracebacks(box)) == (None, [503], 0)
