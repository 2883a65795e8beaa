"""Processing as real processes: killed at random, its queue deleted, and every video reaches its final status."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from csi.processing.store import db
from csi.processing.store.db import fetch
from tests.fakes.pages import ROOT
from tests.fakes.providers import FakeAssembly, FakeChat
from tests.fakes.raw_server import RawRequest, RawServer, Script, Send, answer
from tests.rigs.processes import free_port
from tests.rigs.processing_bench import ProcessingBench

pytestmark = pytest.mark.slow
CONSUMER = ["-w", "4", "-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1", "-g", "TERM", "-t", "25"]


class Running:
    """The worker, as often as it takes."""

    def __init__(self, home: Path, config: dict[str, Any], **more_env: str) -> None:
        self.home, self.more_env = home, more_env
        (home / "processing.yaml").write_text(yaml.safe_dump(config))
        self.process = self.start()

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "CSI_PROCESSING_CONFIG": str(self.home / "processing.yaml"),
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "openai-key-1",
            "ASSEMBLYAI_API_KEY": "assembly-key-1",
            "UA_SIGNALS_INGEST_SHARED_SECRET": "csi-test-secret",
            **self.more_env,
        }

    def start(self) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "huey.bin.huey_consumer", "tasks.processing.huey", *CONSUMER]
        with (self.home / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                line, env=self.env, cwd=self.home, stdout=log, stderr=log, start_new_session=True
            )
        return self.process

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.wait_for(self.catches_sigterm, 30.0)
        self.process.terminate()
        return self.process.wait(30)

    def catches_sigterm(self) -> bool:
        """False in the first second of a process: SIGTERM then ends it at once, with another exit code."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def wait_for(self, done: Any, seconds: float = 150.0) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            log = (self.home / "worker.log").read_text()[-3000:]
            assert time.monotonic() < deadline, log
            assert self.process.poll() is None, log
            time.sleep(0.1)


def counted() -> dict[str, int]:
    try:
        with db.reading():
            return dict(fetch("SELECT status, count(*) FROM videos GROUP BY status"))
    except Exception:
        return {}


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed"))


def test_kills_and_a_deleted_queue_lose_nothing_and_pay_nothing_twice(tmp_path, clock, seed, capsys):
    count, rng = 24, random.Random(seed)
    clock.time = time.time()
    with FakeAssembly() as assembly, FakeChat(idempotent=True) as chat:
        (tmp_path / "audio").mkdir()
        config = {
            "state_dir": str(tmp_path / "state"),
            "receiver_db": str(tmp_path / "receiver.db"),
            "log_format": "json",
            "transcription": {
                "providers": ["file", "assemblyai"],
                "file": {"directory": str(tmp_path / "transcripts")},
                "assemblyai": {"base_url": assembly.url, "audio_dir": str(tmp_path / "audio"), "poll_seconds": 1},
            },
            "summarization": {"provider": "openai", "openai": {"base_url": chat.url, "honours_idempotency_key": True}},
        }
        bench = ProcessingBench(tmp_path, clock)
        for number in range(count):
            name = f"vid{number:08d}"
            bench.deliver(name, text=None if number % 3 == 0 else "It was said. " * 30)
            if number % 6 == 0:
                (tmp_path / "audio" / f"{name}.mp3").write_bytes(b"audio")
        bench.close()
        worker = Running(tmp_path, config)
        db.open_database(str(tmp_path / "state" / "processing.db"))
        kills = 3
        try:
            for _ in range(kills):
                worker.wait_for(lambda: sum(counted().values()) > 0)
                time.sleep(rng.uniform(0.2, 1.2))
                worker.kill()
                if rng.random() < 0.5:
                    (tmp_path / "state" / "queue.db").unlink(missing_ok=True)
                worker.start()
            ends = {"summarized": count - 4, "skipped": 4}
            worker.wait_for(lambda: counted() == ends)
            assert worker.stop() == 0
        finally:
            worker.kill()
        with db.reading():
            paid = dict(fetch("SELECT provider, count(*) FROM calls WHERE state = 'paid' GROUP BY provider"))
            left = fetch("SELECT count(*) FROM jobs WHERE lease_token IS NOT NULL")[0][0]
        print(f"kills={kills} summarized={count - 4} billed={assembly.billed}+{chat.billed} booked={paid} seed={seed}")
        assert paid == {"assemblyai": assembly.billed, "openai": chat.billed}
        assert (assembly.billed, chat.billed, left) == (4, count - 4, 0)
    lines = [json.loads(line) for line in (tmp_path / "worker.log").read_text().splitlines() if line.startswith("{")]
    assert not [line for line in lines if line["level"] == "ERROR" or "Traceback" in json.dumps(line)]
    assert "openai-key-1" not in (tmp_path / "worker.log").read_text()


def test_a_second_worker_on_the_same_state_says_so(tmp_path):
    config = {
        "state_dir": str(tmp_path / "state"),
        "receiver_db": str(tmp_path / "r.db"),
        "transcription": {"providers": ["file"]},
    }
    worker = Running(tmp_path, config)
    try:
        worker.wait_for(
            lambda: (
                (tmp_path / "state" / "worker.lock").exists()
                and "processing starts" in (tmp_path / "worker.log").read_text()
            )
        )
        second = Running(tmp_path, config)
        assert second.process.wait(30) == 9
        assert "another worker" in (tmp_path / "worker.log").read_text()
    finally:
        worker.kill()


class ServingReceiver:
    """`csi receiver --processing` on a free port."""

    def __init__(self, worker: Running) -> None:
        self.worker, self.url = worker, f"http://127.0.0.1:{free_port()}"
        line = [sys.executable, "-m", "csi.cli.main", "receiver", "--port", self.url.rpartition(":")[2]]
        line += ["--db", str(worker.home / "receiver.db"), f"--processing={worker.home / 'processing.yaml'}"]
        with (worker.home / "receiver.log").open("ab") as log:
            self.process = subprocess.Popen(line, env=worker.env, cwd=worker.home, stdout=log, stderr=log)

    def ready(self) -> tuple[int, dict[str, Any]]:
        try:
            answer = httpx.get(f"{self.url}/processing/readyz", timeout=5)
        except httpx.TransportError:
            return 0, {}
        return answer.status_code, answer.json()

    def page(self, path: str) -> str:
        """As a browser that opened a link of `csi receiver login-link`."""
        line = [sys.executable, "-m", "csi.cli.main", "receiver", "login-link", "--url", self.url]
        line += ["--db", str(self.worker.home / "receiver.db")]
        link = subprocess.run(line, env=self.worker.env, capture_output=True, text=True, check=True).stdout.strip()
        with httpx.Client(follow_redirects=True) as browser:
            browser.get(link)
            return browser.get(f"{self.url}{path}").text

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def wait_until(is_true: Callable[[], bool], seconds: float) -> float:
    """How many seconds it took."""
    started = time.monotonic()
    while not is_true():
        assert time.monotonic() - started < seconds
        time.sleep(0.2)
    return time.monotonic() - started


def csi(worker: Running, *words: str) -> str:
    line = [sys.executable, "-m", "csi.cli.main", *words]
    return subprocess.run(line, env=worker.env, cwd=worker.home, capture_output=True, text=True, timeout=60).stdout


def test_a_refused_key_and_a_killed_worker_are_said_and_notified(tmp_path, clock):
    messages: list[dict[str, Any]] = []

    def take(request: RawRequest) -> Script:
        messages.append(json.loads(request.body))
        return [Send(answer(200, b"{}"))]

    clock.time = time.time()
    count = 20
    with FakeChat() as chat, RawServer(take) as target:
        chat.always = {"/chat/completions": 401, "/models": 401}
        config = {
            "state_dir": str(tmp_path / "state"),
            "receiver_db": str(tmp_path / "receiver.db"),
            "log_format": "json",
            "transcription": {"providers": ["file"], "file": {"directory": str(tmp_path / "transcripts")}},
            "summarization": {"provider": "openai", "openai": {"base_url": f"{chat.url}/v1"}},
            "routes": {"creator_watchlist_handler": {"action": "process"}},
        }
        bench = ProcessingBench(tmp_path, clock)
        for number in range(count):
            bench.deliver(f"vid{number:08d}")
        bench.close()
        began_at = time.monotonic()
        worker = Running(tmp_path, config, CSI_NOTIFY_URLS=target.url.replace("http", "json", 1))
        receiver = ServingReceiver(worker)
        try:
            # The key is refused: one message, every job waits, none is dead, and each of the four threads called once.
            wait_until(lambda: len(messages) == 1, 30)
            told_after = time.monotonic() - began_at
            assert "authentication failed (HTTP 401)" in messages[0]["message"]
            db.open_database(str(tmp_path / "state" / "processing.db"))
            wait_until(lambda: rows("SELECT count(*) FROM jobs WHERE waits_for = 'openai'") == [(count,)], 30)
            assert (rows("SELECT count(*) FROM dead_jobs"), chat.count("/chat/completions") <= 4) == ([(0,)], True)
            status, body = receiver.ready()
            assert (status, [problem["id"] for problem in body["problems"]]) == (503, ["provider_refused"])
            # The remedy: its command, once the key is valid.
            chat.always = {}
            command = body["problems"][0]["commands"][-1]
            assert f"{count} jobs are due" in csi(worker, *command.split()[1:])
            wait_until(lambda: counted() == {"summarized": count}, 60)
            wait_until(lambda: receiver.ready()[0] == 200, 30)
            # The worker is killed: page, command and readiness say so within 30 s, the receiver notifies after 60 s.
            worker.kill()
            said_after = wait_until(lambda: receiver.ready()[0] == 503, 30)
            assert "silent for" in csi(worker, "processing", "status")
            assert "last heartbeat of processing" in receiver.page("/ui")
            assert "csi_processing_worker_alive 0.0" in httpx.get(f"{receiver.url}/metrics").text
            notified_after = said_after + wait_until(lambda: len(messages) == 3, 60)
            assert messages[1]["title"].endswith("provider refused (openai): resolved")
            assert "csi processing run" in messages[2]["message"]
        finally:
            worker.kill()
            receiver.stop()
    print(f"401 notified={told_after:.0f}s killed: readyz={said_after:.0f}s notified={notified_after:.0f}s")
    assert [message["type"] for message in messages] == ["failure", "success", "failure"]
    assert "openai-key-1" not in (tmp_path / "receiver.log").read_text() + json.dumps(messages)


def rows(sql: str) -> list[tuple[Any, ...]]:
    with db.reading():
        return fetch(sql)
