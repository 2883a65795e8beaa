"""make bench, part poll: what a round of 500 channels costs the real worker, beside the PRD's limits (§6.1).

A simulated YouTube in another process answers every request after 100 ms. Measured are a cold round (all channels due
at once), the worker at rest, and two warm rounds, spread over some seconds: in one every feed has changed, in the other
each has the same bytes as before (two of three have, at YouTube, whose caches keep a feed for 15 minutes). The share of
a core at the usual interval is rest and a round of changed feeds. Linux only: it needs /proc.
"""

import argparse
import json
import os
import random
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from csi.demo.configuration import WORKER

ROOT = Path(__file__).resolve().parents[2]
INTERVAL = 300.0
"""FR-1.4: the interval of a channel."""

MOST_SHARE, MOST_MEGABYTES = 5.0, 512.0
DEADLINE = 120.0


@dataclass(frozen=True)
class Report:
    """What was measured. CPU is the worker's own, user and system together."""

    channels: int
    latency_ms: float
    cold_seconds: float
    cold_cpu_seconds: float
    cpu_ms_per_feed: float
    cpu_ms_per_same_feed: float
    rest_share_percent: float
    share_percent: float
    peak_mb: float

    @property
    def limits(self) -> dict[str, bool]:
        return {
            f"a cold round within its interval of {INTERVAL:g} s": self.cold_seconds <= INTERVAL,
            f"less than {MOST_SHARE:g} % of a core": self.share_percent < MOST_SHARE,
            f"less than {MOST_MEGABYTES:g} MB": self.peak_mb < MOST_MEGABYTES,
        }


@dataclass(frozen=True)
class Worker:
    """The process that is measured, and its database."""

    pid: int
    database: Path

    def cpu(self) -> float:
        """Seconds that it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def ask(self, sql: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.database, timeout=10)) as db, db:
            return db.execute(sql, values).fetchall()

    def read_since(self, moment: float) -> int:
        return int(self.ask("SELECT COUNT(*) FROM watches WHERE last_success_at >= ?", moment)[0][0])


@contextmanager
def simulated_youtube(channels: int, latency: float) -> Iterator[dict[str, Any]]:
    """Yields where it listens and what its channels are."""
    options = ["--channels", str(channels), "--playlists", "0", "--latency", str(latency)]
    line = [sys.executable, "-m", "csi.cli.main", "simulate", "youtube", *options]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def running_worker(home: Path, facts: dict[str, Any]) -> Iterator[Worker]:
    env = {
        **os.environ,
        "CSI_CONFIG_PATH": str(_config(home, facts)),
        "CSI_UA_ENDPOINT": "http://127.0.0.1:9/closed",  # a first poll has nothing to send
        "CSI_UA_SHARED_SECRET": secrets.token_hex(16),
    }
    line = [sys.executable, "-m", "huey.bin.huey_consumer", *WORKER]
    with subprocess.Popen(line, env=env, cwd=ROOT) as process:
        try:
            yield Worker(process.pid, home / "state" / "csi.db")
        finally:
            process.terminate()


def _config(home: Path, facts: dict[str, Any]) -> Path:
    source = {
        "feed_url_template": facts["feed_url_template"],
        "poll_interval_seconds": INTERVAL,
        "watchlist": [{"channel_id": ref} for ref in facts["channels"]],
    }
    settings = {
        "csi": {"state_dir": str(home / "state"), "log_level": "WARNING"},
        "sources": {"youtube_channel_rss": source},
    }
    path = home / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def measure(channels: int, latency: float, seconds: float) -> Report:
    with (
        tempfile.TemporaryDirectory(prefix="csi-bench-") as directory,
        simulated_youtube(channels, latency) as facts,
        running_worker(Path(directory), facts) as worker,
    ):
        cold_seconds, cold_cpu = _cold_round(worker, channels)
        rest = _at_rest(worker, seconds / 2)
        per_feed = _warm_round(worker, channels, seconds, rest, changed=True)
        per_same = _warm_round(worker, channels, seconds, rest, changed=False)
        return Report(
            channels=channels,
            latency_ms=latency * 1000,
            cold_seconds=cold_seconds,
            cold_cpu_seconds=cold_cpu,
            cpu_ms_per_feed=per_feed * 1000,
            cpu_ms_per_same_feed=per_same * 1000,
            rest_share_percent=rest * 100,
            share_percent=(per_feed * channels / INTERVAL + rest) * 100,
            peak_mb=worker.peak_mb(),
        )


def _cold_round(worker: Worker, channels: int) -> tuple[float, float]:
    """From the first claim to the last commit. Its CPU has the process's own start in it."""
    _wait(lambda: worker.database.exists() and _is_ready(worker) and worker.read_since(0) >= channels)
    began, ended = worker.ask("SELECT MIN(last_poll_at), MAX(last_success_at) FROM watches")[0]
    return ended - began, worker.cpu()


def _is_ready(worker: Worker) -> bool:
    return bool(worker.ask("SELECT 1 FROM sqlite_master WHERE name = 'heartbeats'"))


def _at_rest(worker: Worker, seconds: float) -> float:
    """CPU seconds a second while nothing is due: the pulse, the queue, the clock."""
    before, started = worker.cpu(), time.monotonic()
    worker.ask("UPDATE watches SET next_poll_at = ?, wake_at = ?", time.time() + 600, time.time() + 600)
    time.sleep(seconds)
    return (worker.cpu() - before) / (time.monotonic() - started)


def _warm_round(worker: Worker, channels: int, seconds: float, rest: float, *, changed: bool) -> float:
    """CPU seconds of one read beyond rest. Each channel is due at a moment of its own, as it is in service."""
    now, started, before = time.time(), time.monotonic(), worker.cpu()
    forget = ", etag = NULL" if changed else ""  # without the digest of the last answer, each is new to the worker
    for (watch_id,) in worker.ask("SELECT id FROM watches"):
        at = now + random.uniform(0, seconds)
        worker.ask(f"UPDATE watches SET next_poll_at = ?, wake_at = ?{forget} WHERE id = ?", at, at, watch_id)
    _wait(lambda: worker.read_since(now) >= channels)
    return (worker.cpu() - before - rest * (time.monotonic() - started)) / channels


def _wait(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + DEADLINE
    while not done():
        if time.monotonic() > ends:
            sys.exit(f"the round was not over after {DEADLINE:g} s")
        time.sleep(0.1)


def words(found: Report) -> Iterator[str]:
    rows = [
        ("cold round", f"{found.cold_seconds:.1f} s", f"{found.cold_cpu_seconds:.1f} s CPU, with the worker's start"),
        (
            "CPU for one feed",
            f"{found.cpu_ms_per_feed:.2f} ms",
            f"{found.cpu_ms_per_same_feed:.2f} ms if unchanged",
        ),
        ("at rest", f"{found.rest_share_percent:.2f} %", "of a core"),
        ("all together", f"{found.share_percent:.2f} %", "of a core"),
        ("peak memory", f"{found.peak_mb:.0f} MB", ""),
    ]
    yield f"{found.channels} channels, {found.latency_ms:g} ms away, every {INTERVAL:g} s"
    yield from (f"  {name:18}{value:>10}   {remark}".rstrip() for name, value, remark in rows)
    yield from (f"  {'pass' if kept else 'FAIL'}: {limit}" for limit, kept in found.limits.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=500)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds before every answer")
    parser.add_argument("--seconds", type=float, default=20, help="over which a warm round is spread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not Path("/proc/self/stat").exists():
        sys.exit("this bench reads /proc, which only Linux has")
    found = measure(options.channels, options.latency, options.seconds)
    if options.json:
        print(json.dumps({**asdict(found), "limits": found.limits}))
    else:
        print("\n".join(words(found)))
    sys.exit(0 if all(found.limits.values()) else 1)


if __name__ == "__main__":
    main()
