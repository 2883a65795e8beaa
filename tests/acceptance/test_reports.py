"""Real processes that meet a dead worker, a locked database or a full disk: the operator is told once, and of the end.
The log names the cause, and stays small."""

import json
import subprocess
import sys
import time

import httpx
import pytest

from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.processes import Installation, free_port, installation, publish
from tests.rigs.small_disk import fill, small_disk

pytestmark = pytest.mark.slow

SIDECAR = "csi.main"
WATCHFUL = "tests.fakes.watchful_sidecar"
MEGABYTE = 1_000_000
FAILED = ('"task failed', '"maintenance failed', '"alerts could not be evaluated')
HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


class Desk:
    """Where messages arrive: apprise's own JSON form, by real HTTP on loopback."""

    def __init__(self, server: ScriptedReceiver) -> None:
        self.server = server
        self.env = {"CSI_NOTIFY_URLS": f"json://127.0.0.1:{server.url.split(':')[2].split('/')[0]}/"}

    @property
    def titles(self) -> list[str]:
        return [json.loads(request.body)["title"].partition(": ")[2] for request in tuple(self.server.requests)]

    def text(self, number: int = 0) -> str:
        return str(json.loads(self.server.requests[number].body)["message"])


@pytest.fixture
def desk():
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    with ScriptedReceiver(then=lambda request: (200, {}, {})) as server:
        yield Desk(server)


def start_sidecar(box: Installation, desk: Desk, module: str = SIDECAR) -> int:
    port = free_port()
    box.start(sys.executable, "-m", module, **desk.env, PORT=str(port))
    box.wait_for(lambda: page(port, "healthz")[0] == 200)
    return port


def page(port: int, name: str) -> tuple[int, str]:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/{name}", timeout=10)
    except httpx.TransportError:
        return 0, ""
    return answer.status_code, answer.text


def test_two_sidecars_tell_once_that_the_worker_is_dead_and_once_that_it_is_back(tmp_path, desk):
    with installation(tmp_path) as box:
        worker = box.start(**desk.env)
        ports = [start_sidecar(box, desk, WATCHFUL) for _ in range(2)]
        box.wait_for(lambda: page(ports[0], "livez")[0] == 200)
        box.wait_for(lambda: box.rows("SELECT 1 FROM heartbeats WHERE name = 'notifier'"))
        time.sleep(5)
        assert desk.titles == [], "a worker evaluates alerts"
        box.kill(worker)
        box.wait_for(lambda: desk.titles, seconds=60)
        assert desk.titles == ["worker silent"]
        assert "start it: `csi run`" in desk.text()
        box.start(**desk.env)
        box.wait_for(lambda: len(desk.titles) == 2, seconds=90)
        assert desk.titles[1] == "worker silent: resolved"


def test_doctor_asks_the_sidecar_where_it_listens_not_where_the_configuration_says(tmp_path, desk):
    with installation(tmp_path) as box:
        box.start()
        port = start_sidecar(box, desk)
        box.wait_for(lambda: box.rows("SELECT 1 FROM heartbeats WHERE name = 'sidecar' AND address IS NOT NULL"))
        assert f"it answers at http://127.0.0.1:{port}" in box.csi("doctor").stdout


@pytest.mark.faults
def test_a_locked_database_is_told_while_it_lasts_and_the_log_stays_small(tmp_path, desk):
    with installation(tmp_path) as box:
        box.change(lambda config: config.update(notify={"after_seconds": 15}))
        worker = box.start(**desk.env)
        port = start_sidecar(box, desk)
        total = publish(box, 10)
        box.wait_for_delivered(total)
        size = box.log.stat().st_size
        line = [sys.executable, "-c", HOLD, str(box.state / "csi.db")]
        holder = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        box.processes.append(holder)
        assert holder.stdout is not None
        holder.stdout.readline()
        began = time.monotonic()
        total += publish(box, 30)
        box.wait_for(lambda: desk.titles, seconds=90)
        assert desk.titles == ["storage (database)"]
        assert "another process holds the database's write lock" in desk.text()
        assert "fuser" in desk.text()
        box.wait_for(lambda: "another process holds the database's write lock" in page(port, "readyz")[1], seconds=60)
        report = box.csi("doctor", "--offline").stdout
        assert "restore" not in report
        assert "fuser -v" in report
        while time.monotonic() - began < 62:
            time.sleep(0.5)
        written = box.log.read_text()[size:]
        assert_small(written, time.monotonic() - began)
        assert "database is locked" in written
        holder.communicate()
        box.wait_for_delivered(total, seconds=90)
        box.wait_for(lambda: len(desk.titles) > 1, seconds=90)
        assert desk.titles[1] == "storage (database): resolved"
        assert worker.poll() is None


@pytest.mark.faults
def test_a_full_disk_is_told_at_once_although_the_alert_cannot_be_stored(tmp_path, desk):
    with small_disk(tmp_path / "state", "40m") as disk, installation(tmp_path) as box:
        box.change(lambda config: config["csi"].update(min_free_mb=2))
        worker = box.start(**desk.env)
        port = start_sidecar(box, desk)
        total = publish(box, 10)
        box.wait_for_delivered(total)
        size, began = box.log.stat().st_size, time.monotonic()
        ballast = fill(disk)
        total += publish(box, 40)
        box.wait_for(lambda: desk.titles, seconds=30)
        assert desk.titles == ["storage (disk)"]
        assert "the disk is full" in desk.text()
        assert "full" in page(port, "readyz")[1]
        report = box.csi("doctor", "--offline").stdout
        assert "restore" not in report
        while time.monotonic() - began < 62:
            time.sleep(0.5)
        written = box.log.read_text()[size:]
        assert_small(written, time.monotonic() - began)
        assert "disk is full" in written
        ballast.unlink()
        box.wait_for_delivered(total, seconds=90)
        box.wait_for(lambda: len(desk.titles) > 1, seconds=90)
        assert desk.titles[1] == "storage (disk): resolved"
        assert worker.poll() is None


def assert_small(written: str, seconds: float) -> None:
    """Less than a megabyte a minute, a line a minute and cause, and never the failed rollback instead of the cause."""
    assert len(written) / max(seconds / 60, 1) < MEGABYTE
    failed = [line for line in written.splitlines() if any(word in line for word in FAILED)]
    assert 1 <= len(failed) <= 6, failed
    assert "cannot rollback" not in written
