"""`csi run` as a process: both live, both end, and the process that dies first decides the exit code."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from csi.cli import run
from csi.errors import STALLED
from tests.fakes.scripted_receiver import ReceivedRequest, Reply, ScriptedReceiver, accept
from tests.fakes.youtube import simulated_youtube
from tests.rigs.processes import Installation, installation

pytestmark = pytest.mark.slow

RUN = (sys.executable, "-m", "csi.cli.main", "run", "--workers", "4")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as built:
        with socket.create_server(("127.0.0.1", 0)) as door:
            port = door.getsockname()[1]
        built.change(lambda config: config.update(web={"port": port}))
        yield built


def children(process: subprocess.Popen[bytes]) -> dict[str, int]:
    """The worker's and the sidecar's process ids, from the kernel."""
    ids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    lines = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in ids}
    found = {"worker": "huey_config.huey", "sidecar": "csi.main"}
    return {name: pid for name, word in found.items() for pid, line in lines.items() if word in line}


def is_up(box: Installation) -> bool:
    """The sidecar answers, and has seen a sign of life of the worker."""
    port = yaml.safe_load((box.home / "config.yaml").read_text())["web"]["port"]
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
    except httpx.TransportError:
        return False


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "Ctrl-C"])
def test_both_work_and_end_together_and_nothing_stays_held(box, number):
    box.yt.add(box.yt.playlists[0], "On its way")
    process = box.start(*RUN)
    box.wait_for(lambda: is_up(box))
    box.wait_for_delivered(1)
    pids = children(process)
    assert set(pids) == {"worker", "sidecar"}
    process.send_signal(number)
    assert process.wait(40) == 0
    assert all(is_gone(pid) for pid in pids.values())
    assert box.rows("SELECT COUNT(*) FROM watches WHERE lease_token IS NOT NULL") == [(0,)]
    assert box.logged("tasks.huey_worker", "released")


def test_hup_reloads_the_configuration_and_ends_nothing(box):
    process = box.start(*RUN)  # without a terminal
    box.wait_for(lambda: is_up(box))
    pids = children(process)
    box.change(lambda config: config["csi"].update(log_level="DEBUG"))
    process.send_signal(signal.SIGHUP)
    box.wait_for(lambda: len(box.rows("SELECT 1 FROM reloads WHERE result = 'loaded'")) == 2)
    assert (process.poll(), children(process)) == (None, pids)
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0


@pytest.mark.parametrize("victim", ["worker", "sidecar"])
def test_when_one_dies_the_other_is_ended_and_the_code_is_the_first_ones(box, victim):
    process = box.start(*RUN)
    box.wait_for(lambda: is_up(box))
    pids = children(process)
    os.kill(pids[victim], signal.SIGKILL)
    assert process.wait(40) == 137
    assert all(is_gone(pid) for pid in pids.values())
    assert f"csi: the {victim} exited unexpectedly (exit code 137)" in box.log.read_text()


def test_a_port_in_use_ends_both_with_its_code(box):
    with socket.create_server(("127.0.0.1", 0)) as door:
        box.change(lambda config: config.update(web={"port": door.getsockname()[1]}))
        process = box.start(*RUN)
        assert process.wait(40) == 8
    assert "is in use by another program" in box.log.read_text()


def test_what_cannot_start_says_so_before_any_process_is_there(box):
    process = box.start(*RUN, CSI_UA_ENDPOINT="")
    assert process.wait(40) == 4
    assert box.log.read_text().startswith("csi: delivery is not configured: CSI_UA_ENDPOINT not set")


def test_the_worker_alone(box):
    process = box.start(*RUN, "--no-web")
    box.wait_for(lambda: box.rows("SELECT 1 FROM heartbeats WHERE name = 'worker'"))
    assert box.csi("health").returncode == 0
    assert set(children(process)) == {"worker"}
    process.terminate()
    assert process.wait(40) == 0


def test_a_worker_that_ended_itself_because_its_threads_hung_is_started_again(tmp_path, capfd):
    """Twice with exit code 10, then it fails: the third time is the end."""
    (tmp_path / "hangs.py").write_text(
        "import pathlib, sys\n"
        "starts = pathlib.Path(__file__).with_name('starts')\n"
        "starts.write_text(starts.read_text() + 'x' if starts.exists() else 'x')\n"
        f"sys.exit({STALLED} if len(starts.read_text()) < 3 else 3)\n"
    )
    code = run._run_together({"worker": ("hangs",)}, {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (code, (tmp_path / "starts").read_text()) == (3, "xxx")
    assert capfd.readouterr().err.count("it is started again") == 2


def test_ten_concurrent_events_are_ten_requests_in_flight(tmp_path):
    ten_at_once = threading.Barrier(10, timeout=40)

    def answer_when_ten_wait(request: ReceivedRequest) -> Reply:
        if request.events:
            ten_at_once.wait()
        return accept(request)

    with simulated_youtube(channels=0, playlists=1) as yt, ScriptedReceiver(then=answer_when_ten_wait) as ua:
        for number in range(20):
            yt.add(yt.playlists[0], f"Number {number}")
        box = Installation(tmp_path, yt, ua.url)
        streaming = {"priority": "high_volume", "streaming_mode": True, "max_concurrent_events": 10}
        box.change(lambda config: config["sources"]["youtube_playlist"].update(streaming))
        try:
            box.start(*RUN, "--no-web")
            box.wait_for_delivered(20)
        finally:
            box.end()
    assert (ua.peak, len(ua.requests) - sum(not one.events for one in ua.requests)) == (10, 20)
    assert [record["threads"] for record in box.logged("tasks.worker", "threads")] == [14]
