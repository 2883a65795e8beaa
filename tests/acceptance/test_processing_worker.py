"""Processing as real processes: killed at random, its queue deleted, and every video reaches its final status."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from csi.processing.store import db
from csi.processing.store.db import fetch
from tests.fakes.pages import ROOT
from tests.fakes.providers import FakeAssembly, FakeChat
from tests.rigs.processing_bench import ProcessingBench

pytestmark = pytest.mark.slow
CONSUMER = ["-w", "4", "-k", "thread", "-d", "0.05", "-m", "0.5", "-s", "1", "-g", "TERM", "-t", "25"]


class Running:
    """The worker, as often as it takes."""

    def __init__(self, home: Path, config: dict[str, Any]) -> None:
        self.home = home
        (home / "processing.yaml").write_text(yaml.safe_dump(config))
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            "CSI_PROCESSING_CONFIG": str(self.home / "processing.yaml"),
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "openai-key-1",
            "ASSEMBLYAI_API_KEY": "assembly-key-1",
        }
        line = [sys.executable, "-m", "huey.bin.huey_consumer", "tasks.processing.huey", *CONSUMER]
        with (self.home / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                line, env=env, cwd=self.home, stdout=log, stderr=log, start_new_session=True
            )
        return self.process

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

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
