"""Problems of the worker process: it is gone, makes no progress, or some of its threads hang. Rules over facts."""

from collections import Counter
from collections.abc import Iterator

from csi import clock
from csi.status.facts import SystemFacts
from csi.status.problems import Problem
from csi.status.worker import FRESH_SECONDS, WorkerStatus

SILENT_SECONDS = 60.0
"""A restart takes less: after so long without a heartbeat the operator is notified."""
NOTIFIER_SECONDS = 180.0
"""The worker evaluates alerts every 15 s, and replaces a notifier that hangs after two minutes."""

ENDS_ITSELF_SECONDS = 180.0
"""A worker whose threads hang has ended itself by then."""

START_WORKER = "start it: `csi run`, or the service csi-worker; its last log line says why it ended"
SET_CLOCK = "set the clock by NTP: `timedatectl set-ntp true`; the worker then corrects its rows"


def problems(facts: SystemFacts) -> Iterator[Problem]:
    worker = facts.worker
    # It could not do its work before the worker started, nor while the machine was suspended.
    started_at = worker.heartbeat.started_at if worker.heartbeat else 0.0
    notifier_since = max(worker.notifier_at or 0.0, started_at, worker.back_at or 0.0)
    if worker.problem is not None:
        yield _silent(worker)
    elif worker.stall.hung:
        yield _hung_threads(worker)
    elif worker.notifier_at is not None and facts.now - notifier_since > NOTIFIER_SECONDS:
        yield Problem(
            "notifier_silent",
            "notifier",
            "degraded",
            "the worker is alive but does not evaluate alerts",
            "the sidecar sends notifications instead, where one runs",
            f"{restart_worker(worker)}; its log line `notifier hangs` says where",
            worker.notifier_at,
            fails=("alert",),
        )


def _silent(worker: WorkerStatus) -> Problem:
    beat_at = worker.heartbeat.beat_at if worker.heartbeat else None
    since = beat_at if worker.stall.since is None or beat_at is None else min(worker.stall.since, beat_at)
    return Problem(
        "worker_silent",
        "worker",
        "down",
        worker.problem or "",
        "nothing is polled, processed or delivered",
        worker_remedy(worker),
        since,
        fails=("ready", "live", "alert"),
        cause=worker.stall.reason,
        is_proven=worker.stall.reason is not None or (worker.age is not None and abs(worker.age) > SILENT_SECONDS),
    )


def _hung_threads(worker: WorkerStatus) -> Problem:
    counted = Counter(task for task, _ in worker.stall.hung)
    since = min(since for _, since in worker.stall.hung)
    names = ", ".join(f"{count} in {task}" for task, count in sorted(counted.items()))
    number = len(worker.stall.hung)
    hang = "1 thread of the worker hangs" if number == 1 else f"{number} threads of the worker hang"
    return Problem(
        "threads_hung",
        "worker",
        "degraded",
        f"{hang} ({names}), since {clock.iso(since)}",
        "the other threads work; the worker restarts itself when too few are left",
        f"{restart_worker(worker)}; its log line `thread hangs` says where",
        since,
        fails=("alert",),
        is_proven=True,
    )


def worker_remedy(worker: WorkerStatus) -> str:
    if worker.age is not None and worker.age < 0:
        return SET_CLOCK
    is_stalled = worker.stall.reason is not None and worker.age is not None and worker.age < ENDS_ITSELF_SECONDS
    if worker.process is None and not is_stalled:
        return START_WORKER
    return f"{restart_worker(worker)}; its log says what it waits for; it also restarts itself when its threads hang"


def restart_worker(worker: WorkerStatus) -> str:
    """For a worker whose process runs: `csi run` would refuse to start a second one."""
    pid = worker.process or (worker.heartbeat.pid if worker.heartbeat else None)
    # A process that is stopped or wholly stuck does not act on SIGTERM. Ended by SIGKILL it loses no event.
    is_silent = worker.age is None or abs(worker.age) > FRESH_SECONDS
    other = f", or end process {pid} (`kill {'-9 ' if is_silent else ''}{pid}`) and start it again" if pid else ""
    return f"restart it: `systemctl restart csi-worker`{other}"
