"""Alerts while no worker evaluates them, and while the database cannot be written: sent once, by one process."""

import json

import pytest

from csi.store import alerts, db, heartbeats
from csi.store.heartbeats import NOTIFIER, SIDECAR, WORKER
from csi.worker import alerting, sidecar_alerting
from csi.worker.sidecar_alerting import AlertStandby
from csi.worker.unstored_alert import UnstoredAlert
from csi.worker_lock import lock_holder
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.rigs.in_process import InProcessPipeline

pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")

LOCKED = db.DatabaseError("database is locked")
FULL = db.DatabaseError("database or disk is full")


@pytest.fixture
def target():
    with ScriptedReceiver(then=lambda request: (200, {}, {})) as ua:
        yield ua


@pytest.fixture
def rt(tmp_path, clock, target):
    port = target.url.split(":")[2].split("/")[0]
    with db.connection():
        urls = {"CSI_NOTIFY_URLS": f"json://127.0.0.1:{port}/"}
        built = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", secrets=urls, sources={})
        heartbeats.write(WORKER, clock(), clock())
        heartbeats.write(NOTIFIER, clock(), clock())
        yield built.rt


def titles(target):
    return [json.loads(request.body)["title"].partition(": ")[2] for request in target.requests]


def rounds(clock, rt, *standbys, seconds):
    for _ in range(int(seconds / sidecar_alerting.ROUND_SECONDS)):
        clock.move(sidecar_alerting.ROUND_SECONDS)
        for standby in standbys:
            standby.run_round(rt)


def test_a_dead_worker_is_reported_once_after_a_minute_and_its_return_is_told(rt, clock, target):
    standby = AlertStandby()
    rounds(clock, rt, standby, seconds=60)
    assert titles(target) == []
    rounds(clock, rt, standby, seconds=20)
    assert titles(target) == ["worker silent"]
    assert "start it: `csi run`" in json.loads(target.requests[0].body)["message"]
    rounds(clock, rt, standby, seconds=600)
    assert titles(target) == ["worker silent"]
    for _ in range(5):
        clock.move(15)
        heartbeats.write(WORKER, clock(), clock())
        alerting.evaluate(rt)
        alerting.note_round(rt, clock())
        standby.run_round(rt)
    assert titles(target) == ["worker silent", "worker silent: resolved"]


def test_after_a_suspend_the_worker_has_a_minute_to_come_back(rt, clock, target):
    standby = AlertStandby()
    rounds(clock, rt, standby, seconds=5)
    clock.move(2 * 86_400)
    rounds(clock, rt, standby, seconds=45)
    heartbeats.write(WORKER, clock(), clock())
    heartbeats.write(NOTIFIER, clock(), clock())
    rounds(clock, rt, standby, seconds=30)
    assert titles(target) == []
    clock.move(2 * 86_400)
    rounds(clock, rt, standby, seconds=90)
    assert titles(target) == ["worker silent"], "it did not come back this time"


def test_while_a_worker_evaluates_alerts_the_sidecar_sends_nothing(rt, clock, target, monkeypatch):
    looks = []
    monkeypatch.setattr(alerting, "evaluate", lambda *given, **more: looks.append(given))
    standby = AlertStandby()
    for _ in range(60):
        clock.move(10)
        heartbeats.write(NOTIFIER, clock(), clock())
        standby.run_round(rt)
    assert looks == []


def test_of_several_sidecars_one_evaluates(rt, clock, target, monkeypatch):
    looks = []
    real = sidecar_alerting.leases.hold_leadership
    first, second = AlertStandby(), AlertStandby()
    names = {id(first): "1-a", id(second): "2-b"}
    monkeypatch.setattr(alerting, "evaluate", lambda *given, **more: looks.append(current[0]))
    current = [""]
    hold = lambda role, now, seconds: real(role, now, seconds, holder=current[0])  # noqa: E731
    monkeypatch.setattr(sidecar_alerting.leases, "hold_leadership", hold)
    for _ in range(30):
        clock.move(10)
        for standby in (first, second):
            current[0] = names[id(standby)]
            standby.run_round(rt)
    assert len(looks) > 10
    assert set(looks) == {"1-a"}


def test_after_a_suspend_the_worker_has_time_to_evaluate_first(rt, clock, target):
    standby = AlertStandby()
    rounds(clock, rt, standby, seconds=30)
    clock.move(3600)
    standby.run_round(rt)
    heartbeats.write(WORKER, clock(), clock())
    heartbeats.write(NOTIFIER, clock(), clock())
    rounds(clock, rt, standby, seconds=30)
    assert titles(target) == []


def test_the_sidecar_records_its_address_once_a_minute(rt, clock):
    standby = AlertStandby("http://127.0.0.1:5100")
    beats = set()
    for _ in range(18):
        clock.move(10)
        heartbeats.write(NOTIFIER, clock(), clock())
        standby.run_round(rt)
        beats.add(heartbeats.last_beat(SIDECAR))
    assert heartbeats.latest(SIDECAR).address == "http://127.0.0.1:5100"
    assert len(beats) == 3


# ── a database that cannot be written ───────────────────────────────────────────────────────────────────


def test_a_full_disk_is_reported_from_memory_at_once_and_its_end_by_the_row(rt, clock, target):
    unstored = UnstoredAlert()
    unstored.failed(rt, FULL)
    assert titles(target) == ["storage (disk)"]
    text = json.loads(target.requests[0].body)["message"]
    assert "the disk is full; nothing can be stored or delivered" in text
    assert "What to do: free disk space" in text
    assert rt.process.database_fault.kind == "full"
    for _ in range(20):
        clock.move(15)
        unstored.failed(rt, FULL)
    assert (len(titles(target)), alerts.firing()) == (1, [])
    unstored.worked(rt)
    assert rt.process.database_fault is None
    (alert,) = alerts.firing()
    assert (alert.name, alert.notified_at is not None) == ("storage", True)
    for _ in range(4):
        clock.move(15)
        heartbeats.write(WORKER, clock(), clock())
        alerting.evaluate(rt)
        unstored.worked(rt)
    assert titles(target)[1:] == ["storage (disk): resolved"]
    assert "It failed for 5 minutes" in json.loads(target.requests[1].body)["message"]


def test_a_file_that_was_removed_is_reported_from_memory_at_once_with_its_cause(rt, target):
    UnstoredAlert().failed(rt, db.DatabaseError("no such table: heartbeats"))
    (request,) = target.requests
    text = json.loads(request.body)["message"]
    assert "its file was removed, replaced or emptied" in text
    assert "csi docs runbook the-database-lacks-its-tables" in text


def test_a_lock_is_reported_from_memory_when_it_has_lasted_for_three_minutes(rt, clock, target):
    unstored = UnstoredAlert()
    unstored.failed(rt, LOCKED)
    assert rt.process.database_fault is None, "one timeout is no fault"
    for _ in range(11):
        clock.move(15)
        unstored.failed(rt, LOCKED)
    assert titles(target) == []
    assert rt.process.database_fault.kind == "locked"
    clock.move(15)
    unstored.failed(rt, LOCKED)
    assert titles(target) == ["storage (database)"]


def test_the_first_failure_of_any_statement_counts_not_the_first_round_that_failed(rt, clock, target):
    unstored = UnstoredAlert()
    unstored.failed(rt, LOCKED, since=clock() - 181)
    assert titles(target) == ["storage (database)"]


def test_a_lock_that_is_released_in_time_is_not_reported(rt, clock, target):
    unstored = UnstoredAlert()
    for _ in range(10):
        clock.move(15)
        unstored.failed(rt, LOCKED)
    unstored.worked(rt)
    alerting.evaluate(rt)
    assert (titles(target), alerts.latest(5)) == ([], [])


def test_a_message_that_could_not_be_sent_is_tried_again(rt, clock, target):
    target.script += [503, 503]
    unstored = UnstoredAlert()
    for _ in range(30):
        unstored.failed(rt, FULL)
        clock.move(15)
    assert len(target.requests) == 3


def test_what_a_row_reported_before_the_disk_was_full_is_not_reported_again(rt, clock, target):
    now = clock()
    texts = {"severity": "degraded", "text": "the disk is nearly full", "remedy": "free space"}
    alerts.fire("storage", "disk", **texts, since=now, delay=0.0, events=0, now=now)
    alerts.mark_notified(alerts.firing()[0], now)
    UnstoredAlert().failed(rt, FULL)
    assert titles(target) == []


@pytest.mark.parametrize("worker_runs", [True, False])
def test_from_memory_the_sidecar_sends_only_where_no_worker_runs(rt, clock, target, monkeypatch, worker_runs):
    """The worker's own notifier sends it there."""
    if db.is_postgres():
        pytest.skip("the lock file is for SQLite")
    monkeypatch.setattr(sidecar_alerting, "lock_holder", lambda state_dir: 4711 if worker_runs else None)
    monkeypatch.setattr(sidecar_alerting.heartbeats, "write", lambda *_, **__: (_ for _ in ()).throw(FULL))
    rounds(clock, rt, AlertStandby(), AlertStandby(), seconds=120)
    assert titles(target) == ([] if worker_runs else ["storage (disk)"])


def test_the_holder_of_the_workers_lock_is_found_without_taking_it(tmp_path):
    assert lock_holder(tmp_path) is None
    (tmp_path / "worker.lock").write_text("4711\n")
    assert lock_holder(tmp_path) is None
