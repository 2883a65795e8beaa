"""The quick start as a new user walks it: an empty directory, the wheel, `csi init` at a terminal, `csi run`."""

import os
import pty
import re
import select
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
import yaml

from tests.fakes.youtube import simulated_youtube
from tests.rigs import clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packages")]

FIRST_EVENT_SECONDS = 60.0


class Terminal:
    """A command in a terminal of its own, answered as a person would."""

    def __init__(self, line: Sequence[str], home: Path, env: dict[str, str]) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(home)
            os.execve(line[0], line, env)
        self.text = ""

    def read_until(self, wanted: str, seconds: float = 60.0) -> str:
        end, start = time.monotonic() + seconds, len(self.text)
        while wanted not in self.text[start:]:
            assert time.monotonic() < end, f"no {wanted!r} in:\n{self.text}"
            if select.select([self._fd], [], [], 1.0)[0]:
                try:
                    self.text += os.read(self._fd, 4096).decode("utf-8", "replace")
                except OSError as error:
                    raise AssertionError(f"it ended without {wanted!r}:\n{self.text}") from error
        return self.text[start:]

    def answer(self, question: str, text: str) -> None:
        self.read_until(question)
        os.write(self._fd, f"{text}\n".encode())

    def press(self, key: str) -> None:
        os.write(self._fd, key.encode())

    def interrupt(self) -> None:
        os.write(self._fd, b"\x03")

    def code(self, seconds: float = 60.0) -> int:
        """The exit code; what is left of its output is read."""
        end = time.monotonic() + seconds
        while True:
            if select.select([self._fd], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self._fd, 4096).decode("utf-8", "replace")
                    continue
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            assert time.monotonic() < end + 5, self.text


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
    return port


def signals(database: Path) -> int:
    if not database.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM signals").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_from_the_wheel_to_the_first_event(tmp_path: Path) -> None:
    csi = str(clean_environment.install(tmp_path / "environment", clean_environment.build_wheel(tmp_path)) / "csi")
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm", "NO_COLOR": "1"}
    endpoint = f"http://127.0.0.1:{free_port()}/api/v1/signals/ingest"
    with simulated_youtube(channels=2) as yt:
        for number in range(15):
            yt.upload(yt.channels[0], f"Number {number}", at=time.time() - 3600 * (15 - number))
        yt.world.add_channel("Sails and Ropes", at=time.time(), handle="@sails")
        began = time.monotonic()
        init = Terminal([csi, "init", "--simulator", yt.base_url], home, env)
        init.answer("receiver's address", "not an address")
        init.answer("receiver's address", endpoint)
        init.answer("API key", "")
        init.answer("What to watch", "@no-such-handle")
        init.answer("What to watch", f"{yt.channels[0]} @sails")
        init.answer("newest item", "y")
        assert init.code() == 0, init.text
        assert "our receiver does not run yet" in init.text
        assert "start it:   csi run --receiver" in init.text
        captions = {"providers": ["captions"], "captions": {"base_url": yt.base_url}}
        processing = {"state_dir": str(home / "processing"), "transcription": captions}
        (home / "processing.yaml").write_text(yaml.safe_dump(processing))
        with_config = env | {"CSI_PROCESSING_CONFIG": str(home / "processing.yaml")}
        run = Terminal([csi, "run", "--processing"], home, with_config)
        try:
            while not signals(home / "state" / "receiver.db"):
                run.read_until("\n")
                assert time.monotonic() - began < FIRST_EVENT_SECONDS, run.text
            seconds = time.monotonic() - began
            while "Sails and Ropes: 0 videos remembered; waiting" not in run.text or "login?key=" not in run.text:
                run.read_until("\n")
                assert time.monotonic() - began < 2 * FIRST_EVENT_SECONDS, run.text
            assert "14 videos remembered, the newest 1 sent; waiting for new ones" in run.text
            link = re.search(r"http://127\.0\.0\.1:\d+/login\?key=[\w-]+", run.text)
            assert link, run.text
            with httpx.Client(follow_redirects=True) as browser:
                assert "Sign out" in browser.get(link[0]).text
                summaries = re.search(r"http://127\.0\.0\.1:\d+/ui/login\?key=[\w-]+", run.text)
                assert summaries, run.text
                assert browser.get(summaries[0]).status_code == 200
            top = Terminal([csi, "top", "--interval", "1s"], home, env)
            top.read_until("NEWEST EVENTS")
            top.press("\r")
            top.read_until("occurred")
            top.press("q")
            assert top.code() == 0, top.text
        finally:
            run.interrupt()
            code = run.code()
        assert code == 0, run.text
        lacking = Terminal([csi, "run", "--processing"], home, env)
        assert lacking.code() == 4, lacking.text
        assert "pip install 'creator-signals[processing]'" in lacking.text
        assert "Traceback" not in lacking.text
    print(f"quick start: the first event was at the receiver after {seconds:.1f} s")
    done = subprocess.run([csi, "status"], cwd=home, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
