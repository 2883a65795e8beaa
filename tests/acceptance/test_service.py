"""The real worker under a service manager: signs of life, reload by SIGHUP, an orderly end."""

import signal
import socket
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from tasks import worker
from tests.fakes.raw_server import static_page
from tests.rigs.processes import installation

pytestmark = pytest.mark.slow


class Manager:
    """What systemd would hear."""

    def __init__(self, path):
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.door.bind(str(path))
        self.path, self.heard = path, []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            try:
                self.heard += self.door.recv(4096).decode().splitlines()
            except OSError:
                return


@pytest.fixture
def box(tmp_path):
    with installation(tmp_path) as built:
        built.manager = Manager(tmp_path / "notify")
        yield built
        built.manager.door.close()


def test_the_worker_reports_reloads_and_ends_in_order(box):
    process = box.start(NOTIFY_SOCKET=str(box.manager.path))
    box.wait_for(lambda: "WATCHDOG=1" in box.manager.heard)
    heard = [line for line in box.manager.heard if not line.startswith(("EXTEND_TIMEOUT_USEC=", "STATUS="))]
    assert heard[0] == "READY=1"
    assert box.rows("SELECT 1 FROM heartbeats"), "the first sign of life comes after the first heartbeat"

    box.change(lambda config: config["sources"]["youtube_playlist"]["playlists"].pop())
    process.send_signal(signal.SIGHUP)
    box.wait_for(lambda: box.logged("csi.worker.reload", level="INFO"))
    assert box.rows("SELECT count(*) FROM watches WHERE state = 'removed'") == [(1,)]
    assert "RELOADING=1" in box.manager.heard

    box.change(lambda config: config.update(delivry={}))
    process.send_signal(signal.SIGHUP)
    box.wait_for(lambda: box.logged("csi.worker.reload", "error", level="ERROR"))
    assert "delivery" in box.rows("SELECT error FROM reloads ORDER BY id DESC LIMIT 1")[0][0]
    box.yt.add(box.yt.playlists[0], "Still read")
    box.wait_for_delivered(1)
    assert process.poll() is None

    process.terminate()
    assert process.wait(30) == 0
    assert box.manager.heard[-1] == "STOPPING=1"


def test_the_heartbeat_url_is_pinged_while_the_worker_is_well(box):
    with static_page() as there:
        box.start(CSI_HEARTBEAT_URL=f"{there.url}/canary-of-the-ping", CSI_LOG_LEVEL="DEBUG")
        box.wait_for(lambda: there.targets)
        assert there.targets == ["/canary-of-the-ping"]
    assert "canary-of-the-ping" not in box.log.read_text()


def consumer(*, alive=True, scheduler=True, read_ago=1.0, ended_ago=1.0):
    thread = SimpleNamespace(is_alive=lambda: alive)
    return SimpleNamespace(
        scheduler=SimpleNamespace(is_alive=lambda: scheduler),
        worker_threads=[(None, thread)],
        huey=SimpleNamespace(
            schedule_read_at=time.monotonic() - read_ago,
            task_ended_at=time.monotonic() - ended_ago,
            depth=lambda: 0,
            has_just_failed=lambda: False,
        ),
    )


@pytest.mark.parametrize(
    ("given", "depth", "ill"),
    [
        ({"ended_ago": 9999.0}, 0, None),
        ({}, 5, None),
        ({"ended_ago": worker.STUCK_SECONDS + 1}, 5, "tasks are queued but none completes"),
        ({"alive": False}, 0, "a worker's thread is gone"),
        ({"scheduler": False}, 0, "the scheduler's thread is gone"),
        ({"read_ago": worker.SCHEDULER_SECONDS + 1}, 0, "the scheduler hangs"),
    ],
    ids=["idle", "working", "stuck", "no workers", "no scheduler", "a scheduler that hangs"],
)
def test_the_watchdog_is_fed_only_while_work_is_done(given, depth, ill):
    assert worker.standstill(consumer(**given), depth) == ill


def fail(*_):
    raise OSError("database or disk is full")


@pytest.mark.parametrize(
    ("broken", "signs"),
    [(None, 1), ("write_heartbeat", 0), ("rescue", 0)],
    ids=["all is well", "no heartbeat could be written", "due rows could not be found"],
)
def test_the_watchdog_is_not_fed_after_a_pass_that_failed(monkeypatch, broken, signs):
    given: list[tuple[str, ...]] = []
    own, loop = worker.maintenance, {"shift_times_after_clock_change": None, "write_heartbeat": None}
    for owner, name, result in [
        *((own, name, result) for name, result in loop.items()),
        (own.redrive, "redrive", []),
        (own.receiver_test, "due_tests", []),
        (own.subscribe, "due_requests", []),
        (own.event_subscriptions, "remove_expired", None),
        (own, "sample_backlog", None),
        (own.live_start, "due_checks", []),
        (own.watch_icons, "due_lookups", []),
        (own.rescue, "rescue", []),
    ]:
        answer = fail if name == broken else lambda *_, result=result: result
        monkeypatch.setattr(owner, name, answer)
    monkeypatch.setattr(own.leader, "leads", lambda *_, **__: True)
    monkeypatch.setattr(own.leader, "has_led", lambda rt: True)
    monkeypatch.setattr(worker.run_job, "requeue_failed_and_stuck", lambda rt: 0)
    monkeypatch.setattr(worker.run_job, "wake_due", lambda rt: [])
    monkeypatch.setattr(worker.systemd, "notify", lambda *lines: given.append(lines))
    monkeypatch.setattr(worker, "_held", [SimpleNamespace(use_managed_destinations=lambda: None, now=time.time)])
    tested = worker.IngesterWorker()
    monkeypatch.setattr(tested, "_look_for_stall", lambda *_: None)
    with suppress(OSError):
        tested.run_pass(consumer(), 0)
    assert (len(given), tested.is_well()) == (signs, bool(signs))


def test_the_heartbeat_url_is_not_pinged_after_30_seconds_without_a_pass():
    tested = worker.IngesterWorker()
    assert tested.is_well() is False
    tested.passed_at = time.monotonic()
    assert tested.is_well() is True
    tested.passed_at = time.monotonic() - worker.FRESH_SECONDS - 1
    assert tested.is_well() is False
