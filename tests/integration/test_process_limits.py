"""What the operating system refuses is one sentence and an exit code; what the processes write is private."""

import errno
import fcntl
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from csi.cli import main
from csi.errors import StoreError
from csi.worker_lock import hold_worker_lock

ROOT = Path(__file__).resolve().parents[2]
NO_THREADS = """
import os, sys, threading
def refuse(self):
    mask = os.umask(0)
    sys.stderr.write(f"umask {mask:o}\\n")
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
"""
WORKER = "from huey.bin import huey_consumer; sys.argv = ['x', 'huey_config.huey']; huey_consumer.consumer_main()"
SIDECAR = "sys.argv = ['x']; import csi.main; csi.main.main()"
CONFIG = """
csi: {instance_id: limited}
sources: {youtube_channel_rss: {enabled: false}}
delivery: {ua_endpoint: "http://127.0.0.1:9/hook"}
web: {host: 127.0.0.1, port: 0}
"""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path


def run(home, code):
    env = {
        "PATH": os.environ["PATH"],
        "CSI_CONFIG_PATH": str(home / "config.yaml"),
        "CSI_STATE_DIR": str(home / "state"),
        "CSI_UA_SHARED_SECRET": secrets.token_hex(32),
        "PYTHONPATH": str(ROOT),
    }
    line = [sys.executable, "-c", NO_THREADS + code]
    return subprocess.run(line, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("code", [WORKER, SIDECAR], ids=["worker", "sidecar"])
def test_without_threads_a_process_says_so_and_its_files_are_private(home, code):
    (home / "state").chmod(0o777)
    ended = run(home, code)
    assert ended.returncode == 11, ended.stderr
    assert "csi: no thread can be started: the limit" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "umask 77" in ended.stderr
    assert [path.name for path in (home / "state").iterdir() if path.stat().st_mode & 0o077] == []
    if code is WORKER:
        assert "state directory can be written by every user of this machine" in ended.stdout + ended.stderr


def test_a_command_without_threads_says_so_and_writes_private_files(monkeypatch, capsys):
    masks = []

    def refused(prog_name):
        masks.append(os.umask(0))
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(main, "cli", refused)
    before = os.umask(0o022)
    try:
        with pytest.raises(SystemExit) as ended:
            main.run()
    finally:
        os.umask(before)
    assert ended.value.code == 11
    assert masks == [0o077]
    assert capsys.readouterr().err.startswith("csi: no thread can be started")


def test_a_file_system_without_locks_is_one_sentence(monkeypatch, tmp_path):
    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(StoreError, match=r"worker.lock cannot be locked: No locks available; use a directory"):
        hold_worker_lock(tmp_path)


def test_the_store_loads_no_driver_of_a_server():
    code = "import csi.store.db, sys; print([name for name in ('psycopg', 'psycopg2') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
