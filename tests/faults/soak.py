"""A long random run, `make soak SECONDS=600 SEED=7`: faults on both sides, kills in the middle, the oracle at the end.

The seed decides what happens and when; the machine decides how far the worker had come by then. So a seed repeats the
same weather, not the same bytes.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from csi.receiver.app import INGEST_PATH
from tests.fakes.fault_proxy import LOST, PASS, FaultProxy, Manner
from tests.faults.oracle import Bounds, judge, line, violations
from tests.faults.test_storage import ask, sidecar
from tests.rigs.failing_disk import MODES, FailingDisk
from tests.rigs.memory_limit import MemoryLimit, memory_limit
from tests.rigs.processes import (
    Installation,
    Worker,
    handles,
    installation,
    leaks,
    memory,
    publish,
    read_process_ledgers,
    wait_until,
    wal_size,
)

DRAIN_SECONDS = 120.0
EXCUSED_SECONDS = 30.0
"""So long after its disk failed a worker may end with code 7; the service manager starts it again."""
LONGEST = 6 * 3600.0
SOURCE_FAULTS = ["", "", "storm", "feed:404#40", "api:503=1%50", "any:slow=1s%30", "any:reset%20", "api:cut%20"]
WIRES: dict[str, list[Manner]] = {
    "fine": [PASS],
    "slow": [PASS, Manner(latency=0.3), Manner(piece=20, pause=0.02)],
    "lossy": [PASS, PASS, PASS, LOST, Manner(keep=40)],
    "cut-off": [Manner(refuse=True)],
}


@dataclass
class Run:
    """What happens to the installation, and what it adds up to."""

    box: Installation
    proxy: FaultProxy
    rng: random.Random
    web_port: int
    disk: FailingDisk | None
    memory: MemoryLimit | None
    in_flight: int = 0
    disk_failed_at: float = float("-inf")
    worker: Worker = field(init=False)
    peaks: dict[str, float] = field(default_factory=lambda: {"memory": 0.0, "wal": 0.0, "handles": 0.0})
    done: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        self.worker = self.box.start(**(self.disk.env if self.disk else {}))
        if self.memory is not None:
            self.memory.join(self.worker.pid)

    def act(self, name: str, action: Callable[["Run"], None]) -> None:
        self.done[name] += 1
        action(self)
        self.supervise()
        self.measure()

    def supervise(self) -> None:
        """What a service manager does: a worker that ended by itself is started again, and it is counted."""
        code = self.worker.poll()
        if code is None:
            return
        is_excused = code == 7 and time.monotonic() - self.disk_failed_at < EXCUSED_SECONDS
        self.done["ended-with-the-disk" if is_excused else "ended-by-itself"] += 1
        self.in_flight += self.box.in_flight(self.worker)
        self.start()

    def measure(self) -> None:
        if self.worker.poll() is None:
            pid = self.worker.pid
            found = {"memory": memory(pid), "wal": wal_size(self.box), "handles": float(handles(pid))}
            self.peaks = {name: max(value, found[name]) for name, value in self.peaks.items()}


def publish_some(run: Run) -> None:
    publish(run.box, run.rng.choice([1, 2, 5, 20]), title=run.rng.choice(["Item {}", "Über {} 🚀", "日本 {}"]))


def kill_worker(run: Run) -> None:
    run.in_flight += run.box.kill(run.worker)
    run.start()


def stop_worker(run: Run) -> None:
    worker = run.worker
    worker.terminate()
    if not wait_until(lambda: worker.poll() is not None, 40):
        run.in_flight += run.box.kill(worker)
    run.start()


def freeze_worker(run: Run) -> None:
    """SIGSTOP, sometimes for longer than any lease."""
    run.worker.send_signal(signal.SIGSTOP)
    time.sleep(run.rng.choice([1.0, 5.0, 40.0]))
    run.worker.send_signal(signal.SIGCONT)


def fail_disk(run: Run) -> None:
    """Writes fail, are short or torn, for worker and sidecar."""
    if run.disk is None:
        return
    run.disk.fail(run.rng.choice(list(MODES)), percent=run.rng.choice([5, 50, 100]))
    end = time.monotonic() + run.rng.choice([1.0, 5.0, 20.0])
    while time.monotonic() < end:
        run.disk_failed_at = time.monotonic()
        time.sleep(0.5)
        run.supervise()
    run.disk.heal()


def exhaust_memory(run: Run) -> None:
    if run.memory is None:
        return
    worker = run.worker
    with run.memory.exhausted():
        wait_until(lambda: worker.poll() is not None, 30)
    run.in_flight += run.box.kill(worker)
    run.start()


def crowd_sidecar(run: Run) -> None:
    """Half-open connections; a whole request is answered meanwhile."""
    with ExitStack() as stack:
        for _ in range(600):
            with suppress(OSError):
                wire = stack.enter_context(socket.create_connection(("127.0.0.1", run.web_port), timeout=5))
                wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: x")
        if ask(run.box, run.web_port, "healthz")[0] == 0:
            run.done["sidecar-silent"] += 1


def change_source(run: Run) -> None:
    run.box.yt.set_faults(run.rng.choice(SOURCE_FAULTS))


def change_wire(run: Run) -> None:
    manners = WIRES[run.rng.choice(list(WIRES))]
    rng = random.Random(run.rng.random())
    run.proxy.manner = lambda: rng.choice(manners)


def lose_queue(run: Run) -> None:
    for path in run.box.state.glob("queue.db*"):
        path.unlink(missing_ok=True)


def break_queue(run: Run) -> None:
    for path in run.box.state.glob("queue.db*"):
        path.write_bytes(os.urandom(4096))


def hold_lock(run: Run) -> None:
    """The writer's lock, held by another process for up to twelve seconds."""
    seconds = run.rng.choice([0.5, 3.0, 12.0])
    threading.Thread(target=_hold, args=(run.box.state / "csi.db", seconds), daemon=True).start()


def _hold(path: Path, seconds: float) -> None:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        pass  # the lock was never free: as much of a disturbance
    finally:
        connection.close()


ACTIONS: dict[str, tuple[int, Callable[[Run], None]]] = {
    "publish": (40, publish_some),
    "kill": (10, kill_worker),
    "stop": (3, stop_worker),
    "source": (10, change_source),
    "wire": (14, change_wire),
    "queue-lost": (2, lose_queue),
    "queue-broken": (1, break_queue),
    "lock": (3, hold_lock),
    "freeze": (2, freeze_worker),
    "disk": (4, fail_disk),
    "memory": (2, exhaust_memory),
    "crowd": (2, crowd_sidecar),
}


def soak(home: Path, seconds: float, seed: int) -> bool:
    """True: every invariant held."""
    rng, names = random.Random(seed), list(ACTIONS)
    weights = [ACTIONS[name][0] for name in names]
    with (
        ExitStack() as outside,  # the control group ends after its processes
        installation(home, channels=3, playlists=3, site={"seed": seed, "short_pages": True}) as box,
    ):
        host, port = box.ua_url.removeprefix("http://").removesuffix(INGEST_PATH).split(":")
        with FaultProxy((host, int(port))) as proxy, ExitStack() as stack:
            box.ua_url = proxy.url(INGEST_PATH)
            disk = FailingDisk(home, box.state) if shutil.which("gcc") or shutil.which("cc") else None
            limit = _memory_limit(outside)
            port = stack.enter_context(sidecar(box, **(disk.env if disk else {})))
            print(f"soak: failing writes: {bool(disk)}, memory limit: {bool(limit)}", flush=True)
            run, end = Run(box, proxy, rng, port, disk, limit), time.monotonic() + seconds
            run.start()
            while time.monotonic() < end:
                name = rng.choices(names, weights)[0]
                run.act(name, ACTIONS[name][1])
                time.sleep(min(rng.uniform(0.1, 2.0), max(end - time.monotonic(), 0)))
            return _verdict(run, seconds, seed)


def _memory_limit(stack: ExitStack) -> MemoryLimit | None:
    try:
        return stack.enter_context(memory_limit("csi-soak", 600))
    except pytest.skip.Exception:
        return None


def _verdict(run: Run, seconds: float, seed: int) -> bool:
    box, began = run.box, time.monotonic()
    box.yt.set_faults("")
    run.proxy.manner = lambda: PASS
    wait_until(lambda: run.supervise() or _is_quiet(box), DRAIN_SECONDS)
    back = time.monotonic() - began
    # An event whose receipt could not be written, because the disk failed, is sent again like one of a crash.
    interrupted = box.rows(
        "SELECT COUNT(*) FROM batch_events e JOIN delivery_attempts a ON a.batch_id = e.batch_id "
        "WHERE a.outcome = 'interrupted'"
    )[0][0]
    crashes = max(run.in_flight, interrupted)
    bounds = Bounds(in_flight_at_crashes=crashes + run.proxy.lost_events, timed=False)
    account = judge(read_process_ledgers(box))
    broken = violations(account, bounds) + _worn(run, seconds)
    done = ",".join(f"{name}:{number}" for name, number in sorted(run.done.items()))
    peaks = {name: round(value) for name, value in run.peaks.items()}
    print(f"soak: {line(account, bounds, back=f'{back:.0f}s', **peaks, actions=done, seconds=int(seconds), seed=seed)}")
    print(f"soak: {'FAILED: ' + ', '.join(broken) if broken else 'every invariant held'}")
    return not broken


def _worn(run: Run, seconds: float) -> list[str]:
    """I8 in small and I10."""
    minutes = max(seconds / 60, 1)
    checks = {
        "the worker ended by itself": run.done["ended-by-itself"] > 0,
        "the sidecar did not answer": run.done["sidecar-silent"] > 0,
        "the database is damaged": run.box.rows("PRAGMA integrity_check") != [("ok",)],
        "I8 leaks": leaks(run.box) > 0,
        "I10 memory": run.peaks["memory"] > 512,
        "I10 wal": run.peaks["wal"] > 64,
        "I10 handles": run.peaks["handles"] > 256,
        "I10 log": run.box.log.stat().st_size / minutes > 1_000_000,
    }
    return [name for name, broken in checks.items() if broken]


def _is_quiet(box: Installation) -> bool:
    """Everything served is settled, and no watch has news."""
    found = judge(read_process_ledgers(box))
    return found.lost == 0 and found.summary.pending == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=None, help="an empty directory that is left as it is at the end")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"soak: seconds={options.seconds:.0f} seed={seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="csi-soak-") as temporary:
        home = options.keep or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        passed = soak(home, min(options.seconds, LONGEST), seed)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
