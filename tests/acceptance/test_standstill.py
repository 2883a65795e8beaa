"""A real worker whose threads die or hang, seen by a real sidecar: /livez turns 503 and says why, and the log does."""

import json
import signal
import socket
import sys
from typing import Any

import httpx
import pytest

from csi.errors import STALLED
from tests.fakes.scripted_receiver import ScriptedReceiver, accept
from tests.rigs.processes import Installation, installation

pytestmark = pytest.mark.slow

SIDECAR = [sys.executable, "-m", "tests.fakes.impatient_sidecar"]


@pytest.fixture
def box(tmp_path):
    with installation(tmp_path) as built:
        with socket.create_server(("127.0.0.1", 0)) as door:
            built.port = door.getsockname()[1]
        built.change(lambda config: config.update(web={"port": built.port}))
        yield built


def ask(box: Installation, page: str) -> tuple[int, dict[str, Any]]:
    try:
        answer = httpx.get(f"http://127.0.0.1:{box.port}/{page}")
    except httpx.TransportError:
        return 0, {}
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("fault", "said"),
    [("scheduler-dies", "the scheduler's thread is gone"), ("scheduler-hangs", "the scheduler hangs")],
)
def test_a_worker_without_its_scheduler_gives_no_sign_of_life(box, fault, said):
    box.start(*SIDECAR)
    process = box.start_doomed(fault)
    box.wait_for(lambda: ask(box, "livez")[0] == 200)
    box.wait_for(lambda: said in box.log.read_text())
    box.wait_for(lambda: ask(box, "livez")[0] == 503 and ask(box, "readyz")[0] == 503)
    for page in ("livez", "readyz"):
        assert any(f": {said}" in reason for reason in ask(box, page)[1]["reasons"])
    assert process.poll() is None, "the process itself lives: only its signs told"


def test_polls_that_never_come_back_are_long_overdue(box):
    box.start(*SIDECAR)
    process = box.start_doomed("polls-hang")
    box.wait_for(lambda: ask(box, "livez")[0] == 200)
    box.wait_for(lambda: ask(box, "livez")[0] == 503, seconds=60)
    body = ask(box, "livez")[1]
    assert set(body["overdue"]) == {"youtube_channel_rss", "youtube_playlist"}
    assert "youtube_playlist: 2 watches are long overdue" in body["reasons"]
    assert body["worker"]["heartbeat_age_seconds"] < 12, "it still finds what is due; no thread ends its task"
    assert process.poll() is None


@pytest.mark.faults
def test_a_worker_whose_polls_hang_says_where_tells_the_operator_and_ends_itself(box):
    with ScriptedReceiver(then=lambda request: (200, {}, {})) as target:
        port = target.url.split(":")[2].split("/")[0]
        box.start(*SIDECAR)
        process = box.start_doomed("polls-hang-soon", CSI_NOTIFY_URLS=f"json://127.0.0.1:{port}/")
        box.wait_for(lambda: box.logged("tasks.stall_watch", "where"))
        box.wait_for(lambda: ask(box, "livez")[0] == 503)
        (reason,) = [one for one in ask(box, "readyz")[1]["reasons"] if "the worker" in one]
        box.wait_for(lambda: process.poll() is not None)
        assert process.returncode == STALLED
        hung = box.logged("tasks.stall_watch", "where")
        assert {(line["task"], "threading.py" in line["where"]) for line in hung} == {("poll_watch", True)}
        assert "in a poll, no poll ends, and 3 watches wait" in reason
        ((title, text),) = [(body["title"], body["message"]) for body in bodies(target)]
        assert "worker silent" in title
        assert "in a poll" in text
        assert f"kill {process.pid}" in text
        box.start(CSI_NOTIFY_URLS=f"json://127.0.0.1:{port}/")
        box.yt.add(box.yt.playlists[0], "Polled again")
        box.wait_for_delivered(1)
        box.wait_for(lambda: ask(box, "livez")[0] == 200)
        box.wait_for(lambda: len(target.requests) == 2, seconds=90)
        assert bodies(target)[1]["title"].endswith("resolved")


def bodies(target: ScriptedReceiver) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in target.requests]


def test_one_hung_thread_of_several_is_reported_and_the_others_work_on(box):
    box.start(*SIDECAR)
    process = box.start_doomed("one-poll-hangs")
    box.wait_for(lambda: box.logged("tasks.stall_watch", "where"))
    box.yt.add(box.yt.playlists[0], "By another thread")
    box.yt.add(box.yt.playlists[1], "By another thread")
    box.wait_for_delivered(1)
    box.wait_for(lambda: "csi_problems" in metrics(box) and 'problem="threads_hung"' in metrics(box))
    assert "1 thread of the worker hangs (1 in poll_watch)" in box.csi("status").stdout
    assert process.poll() is None
    assert not [reason for reason in ask(box, "livez")[1]["reasons"] if reason.startswith("the worker")]


def metrics(box: Installation) -> str:
    return httpx.get(f"http://127.0.0.1:{box.port}/metrics").text


def test_a_thread_that_hangs_in_a_transaction_ends_the_worker_although_its_loop_hangs_too(box):
    process = box.start_doomed("transaction-hangs")
    box.wait_for(lambda: process.poll() is not None, seconds=60)
    assert process.returncode == STALLED
    (line,) = box.logged("tasks.stall_watch", "exit_code")
    assert "the maintenance loop hangs: " in line["reason"]
    assert "csi/sql.py" in line["reason"]


def test_a_notifier_that_hangs_is_replaced(box):
    with ScriptedReceiver(then=lambda request: (200, {}, {})) as target:
        port = target.url.split(":")[2].split("/")[0]
        process = box.start_doomed("notifier-hangs", CSI_NOTIFY_URLS=f"json://127.0.0.1:{port}/")
        box.wait_for(lambda: "notifier hangs; another thread takes its place" in box.log.read_text())
        (box.home / "config.yaml").write_text("csi: [")
        process.send_signal(signal.SIGHUP)
        box.wait_for(lambda: target.requests)
    assert "reload refused" in bodies(target)[0]["title"]


def test_a_scheduler_that_died_once_is_replaced_and_nobody_is_troubled(box):
    box.start(*SIDECAR)
    box.start_doomed("scheduler-dies-once")
    box.wait_for(lambda: "Scheduler died, restarting." in box.log.read_text())
    box.wait_for(lambda: ask(box, "livez")[0] == 200)
    box.yt.add(box.yt.playlists[0], "Still on its way")
    box.wait_for_delivered(1)


def test_one_503_is_a_note_and_a_401_is_a_reason(box):
    with ScriptedReceiver(accept, 503, then=401) as ua:  # the first request is the test at the worker's start
        box.start(*SIDECAR)
        box.start(CSI_UA_ENDPOINT=ua.url)
        box.wait_for(lambda: ask(box, "readyz")[0] == 200)
        box.yt.add(box.yt.playlists[0], "Refused for a moment")
        box.wait_for(lambda: ask(box, "readyz")[1]["delivery"]["note"])
        status, body = ask(box, "readyz")
        assert (status, body["delivery"]["ua_reachable"], body["reasons"]) == (200, True, [])
        assert body["delivery"]["note"] == "the last attempt failed: the receiver is unavailable (503); it is retried"
        box.yt.add(box.yt.playlists[1], "Refused for good")
        box.wait_for(lambda: ask(box, "readyz")[0] == 503)
        body = ask(box, "readyz")[1]
        assert body["delivery"]["ua_reachable"] is False
        (reason,) = body["reasons"]
        assert reason.startswith("the circuit breaker of destination default is open: authentication failed (401)")
