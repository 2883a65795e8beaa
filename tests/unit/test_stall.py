"""When threads of the worker hang, and when that is a stall of the whole worker."""

import threading

import pytest

from csi.worker.stall import HUNG_SECONDS, LONG_TASK_SECONDS, PollProgress, RunningTask, stalled_polls, stalled_steps
from tasks import worker
from tasks.stall_watch import DATABASE_SECONDS, LOOP_SECONDS, RESTART_SECONDS, Stall, StallWatch
from tasks.thread_report import RunningTasks, where


def running(task="poll_watch", seconds=HUNG_SECONDS + 1):
    return RunningTask("Worker-1", 7, task, "3", seconds)


def progress(seconds=HUNG_SECONDS + 1, watches=10, late=5, overdue=0):
    return PollProgress(seconds, watches, late, overdue)


@pytest.mark.parametrize(
    ("tasks", "found", "is_stalled"),
    [
        ([running()], progress(), True),
        ([running()], progress(late=4), False),
        ([running()] * 3, progress(late=0), True),
        ([running()], progress(seconds=HUNG_SECONDS - 1, late=10), False),
        ([running(seconds=HUNG_SECONDS - 1)], progress(late=10), False),
        ([], progress(overdue=5), True),
        ([], progress(overdue=4), False),
        ([], progress(seconds=3600, late=0), False),
    ],
    ids=["half wait", "few wait", "no slot left", "others end", "slow", "overdue", "few overdue", "nothing is due"],
)
def test_polls_stall_when_none_ends_and_half_of_the_watches_wait(tasks, found, is_stalled):
    assert (stalled_polls(tasks, found, slots=3) is not None) == is_stalled


def test_a_delivery_that_hangs_is_a_stall_only_while_no_other_ends():
    hung = [running("deliver_batch")]
    assert stalled_steps(hung, {}) == "1 thread hangs in deliver_batch, and none of these tasks ends"
    assert stalled_steps(hung, {"deliver_batch": 5.0}) is None
    assert stalled_steps([running()], {}) is None, "polls have their own rule"


def test_long_tasks_may_last_longer():
    assert not running("prune_rows", LONG_TASK_SECONDS - 1).is_hung
    assert running("prune_rows", LONG_TASK_SECONDS + 1).is_hung


@pytest.mark.parametrize(
    ("stall", "looped", "failed", "ends"),
    [
        (None, 1, 9999, False),
        (Stall("the scheduler hangs", -RESTART_SECONDS + 1), 1, 9999, False),
        (Stall("the scheduler hangs", -RESTART_SECONDS - 1), 1, 9999, True),
        (Stall("the task queue cannot be read", -9999, ends_by_restart=False), 1, 9999, False),
        (None, LOOP_SECONDS + 1, 9999, True),
        (None, LOOP_SECONDS + 1, DATABASE_SECONDS - 1, False),
        (Stall("the scheduler hangs", -RESTART_SECONDS - 1), 1, DATABASE_SECONDS - 1, False),
    ],
    ids=["well", "not yet", "for long", "queue away", "loop hangs", "loop waits for the database", "database away"],
)
def test_the_process_ends_itself_only_where_a_restart_helps(monkeypatch, stall, looped, failed, ends):
    monkeypatch.setattr("tasks.stall_watch.time.monotonic", lambda: 0.0)
    watch = StallWatch()
    watch.stall = stall
    assert (watch.must_end(-looped, -failed) is not None) == ends


def test_the_place_of_a_thread_is_named_and_its_task_until_it_ends():
    tasks, begun, release = RunningTasks(), threading.Event(), threading.Event()

    def wait_for_release():
        tasks.begin("poll_watch", "3")
        begun.set()
        release.wait()
        tasks.end("poll_watch")

    thread = threading.Thread(target=wait_for_release, name="Worker-9")
    thread.start()
    begun.wait()
    ((one),) = tasks.now()
    place = where(one.ident)
    release.set()
    thread.join()
    assert (one.thread, one.task, one.key) == ("Worker-9", "poll_watch", "3")
    assert "tests/unit/test_stall.py" in place
    assert "wait_for_release" in place
    assert (tasks.now(), set(tasks.seconds_since_end()), where(one.ident)) == ([], {"poll_watch"}, "")


def test_a_process_that_was_stopped_for_minutes_does_not_end_itself(monkeypatch):
    """SIGSTOP for ten minutes: no pass of the maintenance loop has ended meanwhile, and none of its threads hangs."""
    process, clock, ended, waits = worker.IngesterWorker(), [1000.0], [], iter([605.0, 5.0, 400.0])
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    process.looped_at = process.notified_at = clock[0]

    def wait(seconds: float) -> bool:
        passed = next(waits, None)
        clock[0] += passed or 0.0
        return passed is None

    monkeypatch.setattr(process.stopping, "wait", wait)
    monkeypatch.setattr(process, "_start_notifier", lambda: ended.append("notifier"))
    monkeypatch.setattr(worker, "end_process", lambda reason, release: ended.append(reason))
    process._watch()
    assert ended == []
    assert process.looped_at == clock[0]


def test_a_maintenance_loop_that_hangs_ends_the_process(monkeypatch):
    process, clock, ended = worker.IngesterWorker(), [1000.0], []
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    process.looped_at = clock[0]

    def wait(seconds: float) -> bool:
        clock[0] += seconds
        process.notified_at = clock[0]
        return bool(ended)

    monkeypatch.setattr(process.stopping, "wait", wait)
    monkeypatch.setattr(worker, "end_process", lambda reason, release: ended.append(reason))
    process._watch()
    assert "maintenance loop hangs" in ended[0]
    assert 180 < clock[0] - 1000 < 200
