"""The real worker under real faults: killed at every step, its queue deleted, stopped, doubled. The oracle counts."""

import os
import pickle
import signal
import sqlite3
import sys
import time

import pytest

from tests.fakes.doomed_worker import POINTS
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver, accept
from tests.rigs.processes import CONSUMER, installation

pytestmark = pytest.mark.slow


@pytest.fixture
def box(tmp_path):
    with installation(tmp_path) as built:
        yield built


def publish(box, number: int) -> int:
    """New items, most of them in the lists: a feed shows only 15. Returns how many."""
    homes = [*box.yt.playlists * 3, *box.yt.channels]
    for index in range(number):
        home = homes[index % len(homes)]
        box.yt.add(home, f"Item {index}") if home.startswith("PL") else box.yt.upload(home, f"Item {index}")
    return number


def check(box, case: str, *, extra: int = 0) -> None:
    """One oracle line per case, and its bounds."""
    account = box.account()
    print(f"{case}: lost={account.lost} extra={account.extra}<={extra} unexpected={account.unexpected}")
    assert (account.lost, account.unexpected, account.pending) == (0, 0, 0)
    assert account.extra <= extra


@pytest.mark.parametrize("point", POINTS)
def test_sigkill_at_every_step_loses_nothing(box, point):
    total = publish(box, 24)
    doomed = box.start_doomed(point, nth=2)
    assert doomed.wait(30) == -signal.SIGKILL
    box.start()
    box.wait_for_delivered(total)
    # what was in the air at the kill may arrive once more: at most the requests of four threads
    in_flight = 4 if point.startswith("deliver") else 0
    check(box, f"SIGKILL at {point}", extra=max(in_flight, 4))


def test_killed_again_and_again(box):
    total, kills = publish(box, 60), 0
    for _ in range(6):
        worker = box.start()
        time.sleep(0.9)  # not a wait for a condition: the moment of the kill is meant to be arbitrary
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        kills += 1
        total += publish(box, 3)
    box.start()
    box.wait_for_delivered(total)
    check(box, f"{kills} kills", extra=4 * kills)


def test_a_deleted_queue_costs_nothing(box):
    box.start()
    total = publish(box, 6)
    box.wait_for_delivered(total)
    for path in box.state.glob("queue.db*"):
        path.unlink()
    total += publish(box, 6)
    box.wait_for_delivered(total)
    assert (box.state / "queue.db").exists()
    check(box, "queue deleted")


def test_a_corrupted_queue_is_set_aside(box):
    box.start()
    total = publish(box, 6)
    box.wait_for_delivered(total)
    for path in box.state.glob("queue.db*"):
        path.write_bytes(os.urandom(8192))
    total += publish(box, 6)
    box.wait_for_delivered(total)
    assert list(box.state.glob("queue.db.broken-*"))
    check(box, "queue corrupted")


class Foreign:
    """A pickle that runs code where it is opened."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_garbage_and_foreign_pickles_in_the_queue_are_dropped(box):
    box.start()
    total = publish(box, 3)
    box.wait_for_delivered(total)
    trap = box.home / "trap"
    rows = [os.urandom(40) for _ in range(3000)] + [pickle.dumps(Foreign(str(trap)))] * 5
    with sqlite3.connect(box.state / "queue.db", timeout=10) as queue:
        queue.executemany("INSERT INTO task (queue, data, priority) VALUES ('csi', ?, 100)", [(row,) for row in rows])
    total += publish(box, 6)
    box.wait_for_delivered(total)
    assert not trap.exists()
    assert box.logged("tasks.huey_worker", "messages", level="WARNING")
    assert "Traceback" not in box.log.read_text()
    check(box, "garbage in the queue")


def test_sigterm_finishes_what_is_under_way(tmp_path):
    def slow(request):
        time.sleep(1.5)
        return accept(request)

    with installation(tmp_path) as box, ScriptedReceiver(then=slow) as ua:
        box.ua_url = ua.url
        publish(box, 2)
        worker = box.start()
        box.wait_for(lambda: ua.requests)
        worker.terminate()
        assert worker.wait(30) == 0
        sent = [event_id for request in ua.requests for event_id in request.event_ids]
        assert box.delivered() == len(sent)
        assert box.rows("SELECT count(*) FROM batches WHERE state = 'sending'") == [(0,)]
        assert len(sent) == len(set(sent))


def test_sigterm_does_not_wait_for_a_receiver_that_never_answers(tmp_path):
    def never(request):
        time.sleep(60 if request.events else 0)
        return 200, {"ok": True}, {}

    with installation(tmp_path) as box, ScriptedReceiver(then=never) as ua:
        box.ua_url = ua.url
        publish(box, 1)
        worker = box.start(*CONSUMER[:-1], "3")
        box.wait_for(lambda: ua.event_ids)
        started = time.monotonic()
        worker.terminate()
        worker.wait(30)
        assert time.monotonic() - started < 10
        assert box.rows("SELECT outcome FROM delivery_attempts WHERE batch_id > 0") == [("interrupted",)]
        assert box.rows("SELECT state FROM batches") == [("ready",)]


def test_a_second_worker_on_the_same_state_says_so(box):
    box.start()
    box.wait_for(lambda: box.rows("SELECT 1 FROM heartbeats"))
    second = box.run(*CONSUMER)
    assert second.returncode == 9
    assert "another worker" in second.stderr
    assert "Traceback" not in second.stderr


def test_after_a_kill_the_next_worker_starts_at_once(box):
    first = box.start()
    box.wait_for(lambda: box.rows("SELECT 1 FROM heartbeats"))
    first.kill()
    first.wait()
    total = publish(box, 3)
    box.start()
    box.wait_for_delivered(total, seconds=20)
    check(box, "restart after a kill")


def test_a_watch_never_polled_is_read_within_five_seconds_of_the_start(box):
    publish(box, 3)
    box.start()
    box.wait_for(lambda: box.rows("SELECT 1 FROM heartbeats"))
    box.wait_for(lambda: box.rows("SELECT count(*) FROM watches WHERE last_success_at IS NULL") == [(0,)], seconds=5)


def test_files_are_private_and_secrets_are_nowhere(box):
    total = publish(box, 3)
    box.start(CSI_LOG_LEVEL="DEBUG")
    box.wait_for_delivered(total)
    assert box.state.stat().st_mode & 0o777 == 0o700
    for path in [*box.state.iterdir(), box.log]:
        assert path == box.log or path.stat().st_mode & 0o077 == 0, path
        content = path.read_bytes()
        assert SECRET.encode() not in content, path
        assert SECRET.encode().hex().encode() not in content, path
        assert box.yt.api_key.encode() not in content, path


@pytest.mark.parametrize(
    ("config", "env", "code", "words"),
    [
        ("{not yaml", {}, 3, "config.yaml:"),
        ("sources: {youtube_playlst: {}}", {}, 3, "youtube_playlist"),
        (None, {"CSI_UA_SHARED_SECRET": ""}, 4, "CSI_UA_SHARED_SECRET"),
        (None, {"CSI_UA_ENDPOINT": ""}, 4, "CSI_UA_ENDPOINT"),
        (None, {"CSI_CONFIG_PATH": "/nowhere/config.yaml"}, 3, "/nowhere/config.yaml"),
    ],
)
def test_what_cannot_start_says_why_in_a_sentence(box, config, env, code, words):
    if config is not None:
        (box.home / "config.yaml").write_text(config)
    done = box.run(*CONSUMER, **env)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert words in done.stderr


def test_a_database_from_a_newer_version_is_refused(box):
    assert box.run(sys.executable, "-m", "csi.cli.main", "db", "migrate").returncode == 0
    with sqlite3.connect(box.state / "csi.db") as database:
        database.execute("INSERT INTO schema_migration (name, applied) VALUES ('0999_future', '2030-01-01')")
    done = box.run(*CONSUMER)
    assert (done.returncode, "Traceback" in done.stderr) == (7, False)
    assert "newer csi" in done.stderr


def test_a_file_that_is_not_a_database_is_refused(box):
    box.state.mkdir()
    (box.state / "csi.db").write_bytes(b"this is not a database, not at all" * 100)
    done = box.run(*CONSUMER)
    assert (done.returncode, "Traceback" in done.stderr) == (7, False)
    assert (box.state / "csi.db").read_bytes().startswith(b"this is not")
