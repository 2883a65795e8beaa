"""The real worker (or `csi` command), except that it dies of SIGKILL at a named point: `… POINT [NTH] [-- COMMAND]`.

Only this test entry point can set a failpoint: the product has no hooks for it. A point is a call, or a commit of one
function: "before" is inside the transaction with everything written, "after" is when it is on disk.
"""

import importlib
import itertools
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

CONSUMER = ["huey_consumer", "huey_config.huey", *["-w", "4", "-k", "thread", "-s", "1", "-g", "TERM", "-t", "25"]]


@dataclass(frozen=True)
class Point:
    """`attribute` of `module`, called; with `commit`, the transaction that this function opens there."""

    module: str
    attribute: str
    moment: str
    commit: str = ""


def _call(name: str, place: str) -> dict[str, Point]:
    module, _, attribute = place.rpartition(".")
    return {f"{name}:{moment}": Point(module, attribute, moment) for moment in ("before", "after")}


def _commit(name: str, module: str, function: str) -> dict[str, Point]:
    return {f"{name}:{moment}": Point(module, "writing", moment, function) for moment in ("before", "after")}


POINTS = {
    "poll:read": Point("csi.pipeline.poll", "_record_success", "before"),
    "poll:stored": Point("csi.pipeline.poll", "_record_success", "after"),
    "ingest:claimed": Point("csi.pipeline.ingest", "_normalize", "before"),
    "ingest:stored": Point("csi.pipeline.ingest", "_store", "after"),
    "flush:opened": Point("csi.pipeline.flush", "_open_all", "after"),
    "flush:committed": Point("csi.pipeline.flush", "flush", "after"),
    "deliver:claimed": Point("csi.pipeline.deliver", "_send_in_form", "before"),
    "deliver:sent": Point("csi.pipeline.deliver", "_send_in_form", "after"),
    "deliver:settling": Point("csi.pipeline.settle", "_mark_delivered", "after"),
    "deliver:settled": Point("csi.pipeline.deliver", "_send_and_settle", "after"),
}
"""Where the acceptance tests kill, a point between any two steps."""

LOCK_RELEASED = "the write lock is released"
EVERY_POINT = {
    **_call("poll-claim", "csi.store.watches.claim"),
    **_call("poll-page", "csi.adapters.youtube.api.DataApi.items"),
    **_commit("poll-commit", "csi.pipeline.poll", "_record_success"),
    **_call("ingest-claim", "csi.store.inbox.claim"),
    **_commit("ingest-commit", "csi.pipeline.ingest", "_store"),
    **_call("wake", "tasks.huey_worker.QueueHuey.enqueue_many"),
    **_call("dequeue", "tasks.huey_worker.QueueHuey.dequeue"),
    **_commit("flush-commit", "csi.pipeline.flush", "flush"),
    **_call("claim", "csi.store.batches.claim"),
    **_commit("claim-commit", "csi.pipeline.deliver", "deliver"),
    **_call("send", "csi.emitter.http.send"),
    **_call("mark", "csi.store.events.mark_delivered"),
    **_commit("settle-commit", "csi.pipeline.deliver", "_send_and_settle"),
    **_call("bury", "csi.dlq.dead_letters.add_events"),
    **_commit("malformed-commit", "csi.pipeline.ingest", "_reject_malformed"),
    **_call("recover", "csi.store.leases.release_all"),
}
"""Fault case 3: before and after each commit and each send of the walk."""

JOB_POINTS = {
    **_call("job-claim", "csi.store.catalog.jobs.claim"),
    **_call("job-page", "csi.catalog.backfill._page"),
    **_call("job-videos", "csi.catalog.data_api.read_videos"),
    **_commit("job-step", "csi.jobs.run_job", "_save"),
    **_commit("job-end", "csi.jobs.run_job", "_finish"),
}
"""Every step of a backfill."""

COMMANDS = {
    **_commit("prune-events", "csi.store.retention", "_drop_by_id"),
    **_commit("prune-keys", "csi.store.retention", "_drop_oldest"),
    **_call("backup", "csi.store.db.backup"),
    **_call("migrate", "peewee.SqliteDatabase.execute_sql"),
}
"""The same for commands: with `-- db migrate`, the nth statement."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)  # the signal is on its way: this thread must not get any further


class Countdown:
    """True at the nth time, over all threads."""

    def __init__(self, nth: int) -> None:
        self._left, self._lock = nth, threading.Lock()

    def __call__(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left == 0


def doomed_call(function: Callable[..., Any], moment: str, over: Countdown) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        last = moment == "before" and over()
        if last:
            die()
        result = function(*args, **kwargs)
        # A call that found nothing to do (an empty queue, a claim that lost) is not the step that is meant.
        if moment == "after" and result is not None and over():
            die()
        return result

    return wrapper


def doomed_result(function: Callable[..., Any], over: Countdown) -> Callable[..., Any]:
    """For functions that return nothing: dies after the nth call, whatever it returned."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if over():
            die()
        return result

    return wrapper


def doomed_commit(
    writing: Callable[[], AbstractContextManager[None]], function: str, moment: str, over: Countdown
) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def guarded() -> Iterator[None]:
        with writing():
            yield
            if moment == "before" and over():
                die()
        if moment == "after" and over():
            die()

    def opened() -> AbstractContextManager[None]:
        return guarded() if sys._getframe(1).f_code.co_name == function else writing()

    return opened


_SILENT = (
    "enqueue_many",
    "mark_delivered",
    "add_events",
    "_record_success",
    "_mark_delivered",
    "_store",
    "backup",
)


def arm(point: Point, nth: int) -> None:
    """Set the failpoint."""
    owner = _owner(point.module)
    original, over = getattr(owner, point.attribute), Countdown(nth)
    if point.commit:
        setattr(owner, point.attribute, doomed_commit(original, point.commit, point.moment, over))
    elif point.moment == "after" and point.attribute in _SILENT:
        setattr(owner, point.attribute, doomed_result(original, over))
    else:
        setattr(owner, point.attribute, doomed_call(original, point.moment, over))


def _owner(path: str) -> Any:
    """A module, or a class in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def hold_queue_after_schedule(seconds: float) -> None:
    """Fault case 7: another process takes the queue's lock right after Huey read (and deleted) what was due."""
    from huey_config import huey

    read = huey.storage.read_schedule

    def reading(*args: Any) -> Any:
        found = read(*args)
        if found and not _held:
            _held.append(_take_lock(huey.storage.filename, seconds))
        return found

    huey.storage.read_schedule = reading


_held: list[threading.Thread] = []


def _take_lock(path: str, seconds: float) -> threading.Thread:
    taken = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        taken.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()
        sys.stderr.write(f"{LOCK_RELEASED}\n")

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    taken.wait(30)
    return thread


def poison(word: str) -> None:
    """Fault case 10: handling an item with this word in its title ends the process."""
    from csi.pipeline import ingest

    normalize = ingest._normalize

    def handling(rt: Any, watch: Any, item: Any) -> Any:
        if word in item.payload_json:
            die()
        return normalize(rt, watch, item)

    ingest._normalize = handling


def poison_send(word: str) -> None:
    """Fault case 10: sending an event with this word ends the process."""
    from csi.emitter import http

    send = http.send

    def sending(net: Any, receiver: Any, body: bytes, **kwargs: Any) -> Any:
        if word.encode() in body:
            die()
        return send(net, receiver, body, **kwargs)

    http.send = sending


def shorten_retries(first: float, second: float) -> None:
    """20 and 60 s take too long for a test of something else."""
    from csi.emitter import verdict

    verdict.RETRY_DELAYS = (first, second)


def spoil_scheduler(act: Callable[[], Any], *, once: bool = False) -> None:
    """Huey's scheduler thread does this instead of its third look at the queue, and instead of all that follow."""
    from huey.consumer import Scheduler

    loop, looks = Scheduler.loop, itertools.count(1)

    def spoilt(self: Any, now: Any = None) -> None:
        look = next(looks)
        act() if look == 3 or (look > 3 and not once) else loop(self, now)

    Scheduler.loop = spoilt


def hung_scheduler() -> None:
    """It is alive, and does not come back. Said after seconds instead of a minute."""
    from tasks import worker

    worker.SCHEDULER_SECONDS = 3.0
    spoil_scheduler(threading.Event().wait)


def hung_polls() -> None:
    """Whoever reads a watch does not come back, as behind a library that waits without a limit."""
    from csi.pipeline import poll

    poll._record_success = lambda *_, **__: threading.Event().wait()


def hung_polls_noticed_soon() -> None:
    """The same; what the worker does about it after minutes, it does after seconds."""
    from csi.worker import stall
    from tasks import stall_watch, worker

    hung_polls()
    stall.HUNG_SECONDS, stall.LATE_SECONDS = 6.0, 2.0
    stall_watch.LATE_SECONDS, stall_watch.RESTART_SECONDS = 2.0, 8.0
    worker.ALERT_SECONDS = 2.0


def one_hung_poll() -> None:
    """One poll of many does not come back."""
    from csi.pipeline import poll
    from csi.worker import stall

    stall.HUNG_SECONDS = 6.0
    CONSUMER[CONSUMER.index("-w") + 1] = "8"  # of four threads, one is for polls
    record, first = poll._record_success, Countdown(1)
    poll._record_success = lambda *given, **more: threading.Event().wait() if first() else record(*given, **more)


def hung_transaction() -> None:
    """A thread does not come back from the inside of a transaction: everything that writes waits for it."""
    from csi.pipeline import poll
    from csi.store.db import writing
    from tasks import stall_watch

    def hang(*_: Any, **__: Any) -> None:
        with writing():
            threading.Event().wait()

    stall_watch.LOOP_SECONDS = 8.0
    poll._record_success = hang


def hung_notifier() -> None:
    """The first round of the notifier does not come back."""
    from csi.worker import alerting
    from tasks import worker

    evaluate, first = alerting.evaluate, Countdown(1)
    worker.NOTIFIER_SECONDS, worker.ALERT_SECONDS = 4.0, 1.0
    alerting.evaluate = lambda *given, **more: threading.Event().wait() if first() else evaluate(*given, **more)


def no_maintenance() -> None:
    """Neither the maintenance loop nor Huey's rescue of every minute: only the cadence that Huey carries."""
    from tasks import rescue
    from tasks.huey_worker import WorkerProcess

    WorkerProcess._maintain = lambda *_: None
    rescue.rescue = lambda *_: []


SPECIAL: dict[str, Callable[[int], None]] = {
    "no-maintenance": lambda nth: no_maintenance(),
    "lock-after-schedule": lambda nth: (shorten_retries(2, 3), hold_queue_after_schedule(nth))[1],
    "poison-item": lambda nth: poison("POISON"),
    "poison-send": lambda nth: poison_send("POISON"),
    "short-retries": lambda nth: shorten_retries(1, 2),
    "scheduler-dies": lambda nth: spoil_scheduler(sys.exit),
    "scheduler-dies-once": lambda nth: spoil_scheduler(sys.exit, once=True),
    "scheduler-hangs": lambda nth: hung_scheduler(),
    "polls-hang": lambda nth: hung_polls(),
    "polls-hang-soon": lambda nth: hung_polls_noticed_soon(),
    "one-poll-hangs": lambda nth: one_hung_poll(),
    "transaction-hangs": lambda nth: hung_transaction(),
    "notifier-hangs": lambda nth: hung_notifier(),
}


def main() -> None:
    arguments, _, command = " ".join(sys.argv[1:]).partition(" -- ")
    name, _, number = arguments.partition(" ")
    if command:
        sys.argv = ["csi", *command.split()]
        from csi.cli.main import run
    else:
        import huey_config  # noqa: F401 registers the tasks, so that tasks.* can be patched

        sys.argv = CONSUMER
        from huey.bin.huey_consumer import consumer_main as run
    _set(name, int(number or 1))
    run()


def _set(name: str, nth: int) -> None:
    if name in SPECIAL:
        SPECIAL[name](nth)
    elif name != "none":
        arm((POINTS | EVERY_POINT | JOB_POINTS | COMMANDS)[name], nth)


if __name__ == "__main__":
    main()
