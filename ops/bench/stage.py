"""What every bench plays on: a source, a receiver and a worker, each a process of its own on loopback."""

import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from csi.demo.configuration import WORKER
from csi.demo.reconciliation import percentile
from csi.net import HttpLimits, Net
from csi.simulator.youtube.app import YouTubeOptions
from ops.bench.sink import SECRET

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


class Running:
    """A process of ours and what it used. Figures of the last moment stay readable when it has ended."""

    def __init__(self, process: "subprocess.Popen[Any] | None", pid: int | None = None) -> None:
        self.process, self.pid, self._cpu, self._peak = process, pid or getattr(process, "pid", 0), 0.0, 0.0

    @classmethod
    def of_pid(cls, pid: int) -> "Running":
        """A child of one of ours."""
        return cls(None, pid)

    def cpu(self) -> float:
        """Seconds of processor time, user and system."""
        fields = self._proc("stat").rpartition(")")[2].split()
        self._cpu = (int(fields[11]) + int(fields[12])) / _TICKS if fields else self._cpu
        return self._cpu

    def peak_mb(self) -> float:
        """The most memory it ever held."""
        found = self._proc("status").partition("VmHWM:")[2].split()
        self._peak = int(found[0]) / 1024 if found else self._peak
        return self._peak

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self) -> None:
        self.cpu()
        self.peak_mb()
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def _proc(self, name: str) -> str:
        try:
            return Path(f"/proc/{self.pid}/{name}").read_text()
        except OSError:
            return ""


@contextmanager
def started(command: Sequence[str], env: dict[str, str], **options: Any) -> Iterator[Running]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    running = Running(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, **env}, cwd=ROOT, **options))
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def talking(module: str, *options: str, **env: str) -> Iterator[tuple[Running, str]]:
    """A process of ours that first prints one line about itself."""
    command = [sys.executable, "-m", module, *options]
    with started(command, env, stdout=subprocess.PIPE, text=True) as running:
        assert running.process is not None
        assert running.process.stdout is not None
        yield running, running.process.stdout.readline().strip()


@dataclass(frozen=True)
class Source:
    api: str
    lists: list[str]


@contextmanager
def source(count: int, rate: float = 0.0) -> Iterator[Source]:
    with talking("ops.bench.source", "--count", str(count), "--rate", str(rate)) as (_, line):
        yield Source(**json.loads(line))


class Receiver:
    """The sink, seen from here."""

    def __init__(self, url: str, secret: str) -> None:
        self.url, self.secret, self.net = url, secret, Net()

    @property
    def endpoint(self) -> str:
        return f"{self.url}/api/v1/signals/ingest"

    def counts(self) -> dict[str, int]:
        """`events` that arrived, those that came `again`, and `requests`."""
        found: dict[str, int] = json.loads(self.net.get(f"{self.url}/counts").body)
        return found

    def arrived(self) -> dict[str, float]:
        """When each event was first accepted."""
        limits = HttpLimits(max_body=256 * 1024 * 1024)
        found: dict[str, float] = json.loads(self.net.get(f"{self.url}/arrived", limits=limits).body)
        return found

    def wait_for(self, count: int, worker: Running | None = None, deadline: float = DEADLINE) -> dict[str, int]:
        """The counts when so many events are there, or at the deadline."""
        end = time.monotonic() + deadline
        while (found := self.counts())["events"] < count and time.monotonic() < end:
            if worker is not None and worker.process and worker.process.poll() is not None:
                sys.exit(f"the worker ended with {found['events']} of {count} events sent")
            time.sleep(0.2)
        return found


@contextmanager
def receiver(latency: float = 0.0) -> Iterator[Receiver]:
    """`latency`: seconds that it takes for each answer."""
    secret = secrets.token_hex(16)
    with talking("ops.bench.sink", str(latency), **{SECRET: secret}) as (_, url):
        yield Receiver(url, secret)


def configure(home: Path, origin: Source, tier: str, *, interval: float = 3600.0, **csi: Any) -> Path:
    """A configuration of its own in `home`; standard batches go when full or after half a second."""
    home.mkdir(parents=True, exist_ok=True)
    playlists = {
        "api_base_url": origin.api,
        "priority": tier,
        "first_poll": "all",
        "poll_interval_seconds": interval,
        "quota_limit": 100_000_000,
        "playlists": [{"id": ref} for ref in origin.lists],
    }
    settings = {
        "csi": {"state_dir": str(home / "state"), "log_level": "WARNING", **csi},
        "sources": {"youtube_playlist": playlists},
        "delivery": {"priority_behavior": {"standard": {"batch_size": 100, "max_delay_seconds": 0.5}}},
    }
    path = home / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def environment(config: Path, to: Receiver) -> dict[str, str]:
    return {
        "CSI_CONFIG_PATH": str(config),
        "CSI_UA_ENDPOINT": to.endpoint,
        "CSI_UA_SHARED_SECRET": to.secret,
        "YOUTUBE_API_KEY": YouTubeOptions().api_key,
    }


@contextmanager
def worker(config: Path, to: Receiver) -> Iterator[Running]:
    with started([sys.executable, "-m", "huey.bin.huey_consumer", *WORKER], environment(config, to)) as running:
        yield running


def cpu_of_start(worker: Running, database: Path) -> float:
    """Processor time until the worker's first heartbeat: its start is no part of what an event costs."""
    end = time.monotonic() + DEADLINE
    while not has_heartbeat(database) and time.monotonic() < end:
        time.sleep(0.01)
    return worker.cpu()


def has_heartbeat(database: Path) -> bool:
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        return bool(db.execute("SELECT 1 FROM heartbeats").fetchone())
    return False


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    times = sorted(1000 * value for value in seconds)
    return {f"p{share}_ms": percentile(times, share) or 0.0 for share in (50, 95, 99)}
