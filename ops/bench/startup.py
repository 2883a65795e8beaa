"""How long it takes until something answers: `csi --help`, the worker, the sidecar."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from csi.errors import NetError
from csi.net import Net
from ops.bench import stage

TIMES = 5
DEADLINE = 60.0


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="csi-bench-") as home, stage.receiver() as to, stage.source(0) as origin:
        config = stage.configure(Path(home), origin, "urgent", interval=3600)
        env = stage.environment(config, to)
        with stage.started([sys.executable, "-m", "huey.bin.huey_consumer", *stage.WORKER], env) as worker:
            worker_ready = _until(lambda: stage.has_heartbeat(Path(home) / "state" / "csi.db"))
            port = _free_port()
            with stage.started([sys.executable, "-m", "csi.main"], env | {"PORT": str(port)}) as sidecar:
                sidecar_ready = _until(lambda: _answers(f"http://127.0.0.1:{port}/livez"))
                idle = _idle(worker, sidecar)
                memory = worker.peak_mb() + sidecar.peak_mb()
    return {
        "help_ms": 1000 * min(_help() for _ in range(TIMES)),
        "worker_ready_seconds": worker_ready,
        "sidecar_ready_seconds": sidecar_ready,
        "idle_core_percent": 100 * idle,
        "worker_and_sidecar_mb": memory,
    }


def _help() -> float:
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "csi.cli.main", "--help"], stdout=subprocess.DEVNULL, cwd=stage.ROOT, check=True
    )
    return time.monotonic() - began


def _idle(*processes: stage.Running) -> float:
    """Cores that both use while nothing is due."""
    time.sleep(2)
    before, began = sum(one.cpu() for one in processes), time.monotonic()
    time.sleep(10)
    return (sum(one.cpu() for one in processes) - before) / (time.monotonic() - began)


def _until(ready: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not ready() and time.monotonic() - began < DEADLINE:
        time.sleep(0.02)
    return time.monotonic() - began


def _answers(url: str) -> bool:
    with suppress(NetError):
        return Net().get(url).status in (200, 503)
    return False


def _free_port() -> int:
    import socket

    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    print(measure())
