"""What every bench plays on: a source, a receiver and a worker, each a process of its own on loopback."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from csi.demo.serve import in_background
from csi.demo.stage import WORKER
from csi.demo.world import World
from csi.demo.youtube import API_PATH, Options, create_app
from csi.net import Net
from ops.bench.sink import SECRET

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Running:
    """A process of ours and what it used so far."""

    process: subprocess.Popen[Any]
    peak_mb: float = 0.0
    rest_cpu: float = field(default=0.0)

    def cpu(self) -> float:
        """Seconds of processor time, its ended children not counted."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return self.rest_cpu
        self.rest_cpu = (int(fields[11]) + int(fields[12])) / _TICKS
        return self.rest_cpu

    def memory_mb(self) -> float:
        """The most it ever held."""
        try:
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return self.peak_mb
        self.peak_mb = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), self.peak_mb)
        return self.peak_mb

    def stop(self) -> None:
        self.cpu()
        self.memory_mb()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def started(command: Sequence[str], env: dict[str, str], **options: Any) -> Iterator[Running]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    running = Running(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, **env}, cwd=ROOT, **options))
    try:
        yield running
    finally:
        running.stop()


class Receiver:
    """The sink, seen from here."""

    def __init__(self, url: str, secret: str, running: Running) -> None:
        self.url, self.secret, self.running, self.net = url, secret, running, Net()

    def ledger(self) -> dict[str, Any]:
        import json

        found: dict[str, Any] = json.loads(self.net.get(f"{self.url}/ledger").body)
        return found

    def wait_for(self, count: int, worker: Running, deadline: float = DEADLINE) -> dict[str, Any]:
        """The ledger when `count` events are there."""
        end = time.monotonic() + deadline
        while (found := self.ledger())["events"] < count:
            if time.monotonic() > end or worker.process.poll() is not None:
                sys.exit(f"only {found['events']} of {count} events arrived")
            worker.memory_mb()
            time.sleep(0.1)
        return found


@contextmanager
def receiver() -> Iterator[Receiver]:
    secret = secrets.token_hex(16)
    command = [sys.executable, "-m", "ops.bench.sink"]
    with started(command, {SECRET: secret}, stdout=subprocess.PIPE, text=True) as running:
        assert running.process.stdout is not None
        yield Receiver(running.process.stdout.readline().strip(), secret, running)


@contextmanager
def source(count: int, lists: int = 10) -> Iterator[tuple[str, list[str]]]:
    """A simulated YouTube with so many items in so many playlists. Gives its API's address and the lists."""
    world, now = World(), time.time()
    owner = world.add_channel("Bench", at=now).id
    names = [world.add_playlist(f"List {number}", owner=owner, at=now).id for number in range(lists)]
    for number in range(count):
        video = world.upload(owner, f"Video {number}", at=now - count + number)
        world.add_to_playlist(names[number % lists], video.id, at=now - count + number)
    with in_background(create_app(world, Options())) as base:
        yield base + API_PATH, names


def configure(home: Path, api: str, lists: Sequence[str], tier: str, **csi: Any) -> Path:
    """A configuration of its own in `home`; standard batches go when full or after half a second."""
    home.mkdir(parents=True, exist_ok=True)
    playlists = {
        "api_base_url": api,
        "priority": tier,
        "first_poll": "all",
        "poll_interval_seconds": 3600,
        "quota_limit": 10_000_000,
        "playlists": [{"id": ref} for ref in lists],
    }
    settings = {
        "csi": {"state_dir": str(home / "state"), "log_level": "ERROR", **csi},
        "sources": {"youtube_playlist": playlists},
        "delivery": {"priority_behavior": {"standard": {"batch_size": 100, "max_delay_seconds": 0.5}}},
    }
    path = home / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def environment(config: Path, to: Receiver) -> dict[str, str]:
    return {
        "CSI_CONFIG_PATH": str(config),
        "CSI_UA_ENDPOINT": f"{to.url}/api/v1/signals/ingest",
        "CSI_UA_SHARED_SECRET": to.secret,
        "YOUTUBE_API_KEY": Options().api_key,
    }


@contextmanager
def worker(config: Path, to: Receiver) -> Iterator[Running]:
    command = [
        sys.executable,
        "-m",
        "huey.bin.huey_consumer",
        *[os.environ.get("NW", "8") if x == "8" else x for x in WORKER],
    ]
    with started(command, environment(config, to)) as running:
        yield running
