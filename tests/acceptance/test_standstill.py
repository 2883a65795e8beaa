"""A real worker whose threads die or hang, seen by a real sidecar: /livez turns 503 and says why, and the log does."""

import socket
import sys
from typing import Any

import httpx
import pytest

from tests.fakes.scripted_receiver import ScriptedReceiver
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
        assert any("the worker's last heartbeat" in reason for reason in ask(box, page)[1]["reasons"])
    assert process.poll() is None, "the process itself lives: only its signs told"


def test_polls_that_never_come_back_are_long_overdue(box):
    box.start(*SIDECAR)
    process = box.start_doomed("polls-hang")
    box.wait_for(lambda: ask(box, "livez")[0] == 200)
    box.wait_for(lambda: ask(box, "livez")[0] == 503, seconds=60)
    body = ask(box, "livez")[1]
    assert set(body["overdue"]) == {"youtube_channel_rss", "youtube_playlist"}
    assert "youtube_playlist: 2 watches are long overdue" in body["reasons"]
    assert body["worker"]["heartbeat_age_seconds"] < 12, "it still finds what is due; nobody comes back with it"
    assert process.poll() is None


def test_a_scheduler_that_died_once_is_replaced_and_nobody_is_troubled(box):
    box.start(*SIDECAR)
    box.start_doomed("scheduler-dies-once")
    box.wait_for(lambda: "Scheduler died, restarting." in box.log.read_text())
    box.wait_for(lambda: ask(box, "livez")[0] == 200)
    box.yt.add(box.yt.playlists[0], "Still on its way")
    box.wait_for_delivered(1)


def test_one_503_is_a_note_and_a_401_is_a_reason(box):
    with ScriptedReceiver(503, then=401) as ua:
        box.start(*SIDECAR)
        box.start(CSI_UA_ENDPOINT=ua.url)
        box.wait_for(lambda: ask(box, "readyz")[0] == 200)
        box.yt.add(box.yt.playlists[0], "Refused for a moment")
        box.wait_for(lambda: ask(box, "readyz")[1]["delivery"]["note"])
        status, body = ask(box, "readyz")
        assert (status, body["delivery"]["ua_reachable"], body["reasons"]) == (200, True, [])
        assert body["delivery"]["note"] == "the last attempt failed (http 503); it is retried"
        box.yt.add(box.yt.playlists[1], "Refused for good")
        box.wait_for(lambda: ask(box, "readyz")[0] == 503)
        body = ask(box, "readyz")[1]
        assert body["delivery"]["ua_reachable"] is False
        assert body["reasons"] == ["the circuit breaker of destination default is open (http 401)"]
