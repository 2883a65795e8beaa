"""The benches run and say what they measured: few events and few channels, so only their form is judged here."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from ops.bench import figures, scale, stage, targets

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="the bench reads /proc, which only Linux has"
)


def run(*line: str, timeout: float = 150) -> dict:
    command = [sys.executable, "-m", *line, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.faults
def test_the_line_is_measured_beside_a_plain_loop():
    found = run("ops.bench", "line", "--count", "40", "--seconds", "2")["line"]
    for tier, requests in (("urgent", 40), ("standard", 1)):
        assert (found[tier]["events"], found[tier]["again"]) == (40, 0)
        assert found[tier]["requests"] >= requests
        assert found[tier]["to_floor"] > 0
    assert found["steady"]["events"] > 10


@pytest.mark.faults
def test_growth_is_measured_at_each_size():
    found = run("ops.bench", "growth", "--keys", "10000")
    assert [one["keys"] for one in found["growth"]["sizes"]] == [10_000]
    kept = found["growth"]["retention"]
    assert kept["events_removed"] == 3_000
    assert kept["deliveries"] > 0


def test_a_round_of_channels_is_measured_beside_the_limits():
    found = run("ops.bench.poll", "--channels", "6", "--latency", "0.01", "--seconds", "1")
    assert found["channels"] == 6
    assert 0 < found["cold_seconds"] < 60
    assert 10 < found["peak_mb"] < 512
    assert len(found["limits"]) == 3


def test_the_receiver_is_measured_and_loses_nothing():
    found = run("ops.bench", "receiver", "--received", "2")["receiver"]
    assert found["sent"] == 2000 == found["accepted"]
    assert (found["lost"], found["unexpected"], found["not_answered"]) == (0, 0, 0)


@pytest.mark.faults
def test_two_workers_share_the_items_of_one_database():
    found = scale.run_once(
        "standard", 600, workers=2
    )  # enough for the kernel's clock tick of 10 ms to count the database
    assert (found["workers"], found["events"], found["again"]) == (2, 600, 0)
    assert found["database_cpu_ms_per_event"] > 0


def test_each_step_of_an_event_has_its_share():
    found = run("ops.bench.steps", "--count", "30")
    assert set(found) == {"standard", "urgent"}
    assert all(set(steps) == {"poll", "ingest", "open", "send", "settle"} for steps in found.values())
    assert found["urgent"]["send"] > 0


def test_targets_say_pass_fail_or_not_measured():
    lines = targets.table({"line": {"standard": {"events_per_second": 4200.0}, "urgent": {"events_per_second": 10.0}}})
    assert lines[0].endswith("pass")
    assert next(line for line in lines if line.startswith("urgent, events")).endswith("FAIL")
    assert "not measured" in lines[1]


def test_a_ratio_that_fell_by_more_than_a_third_is_named():
    baseline = {"line.urgent.to_floor": 0.6, "growth.ratio": 1.0}
    assert targets.fallen({"line": {"urgent": {"to_floor": 0.5}}, "growth": {"ratio": 1.3}}, baseline) == []
    fell = targets.fallen({"line": {"urgent": {"to_floor": 0.3}}, "growth": {"ratio": 1.6}}, baseline)
    assert [line.split(":")[0] for line in fell] == [
        "urgent, beside the plain loop",
        "an event at the most keys, beside the fewest",
    ]


def test_the_processor_time_beside_the_loop_is_a_ratio_of_the_baseline():
    baseline = targets.load_baseline()
    assert baseline["line.standard.cpu_to_floor"] > 0
    fell = targets.fallen({"line": {"standard": {"cpu_to_floor": 0.05}, "urgent": {"cpu_to_floor": 0.3}}}, baseline)
    assert [line.split(":")[0] for line in fell] == ["standard, CPU of the loop beside ours"]


def test_the_start_of_a_worker_is_no_part_of_what_an_event_costs(tmp_path):
    worker = SimpleNamespace(cpu=lambda: 1.5)
    with closing(sqlite3.connect(tmp_path / "csi.db")) as db, db:
        db.execute("CREATE TABLE heartbeats (at)")
        db.execute("INSERT INTO heartbeats VALUES (1)")
    assert stage.cpu_of_start(worker, tmp_path / "csi.db") == 1.5
    assert not stage.has_heartbeat(tmp_path / "none.db")


def test_the_line_stands_beside_its_peers_and_what_was_not_measured_is_left_out():
    ours = {"events_per_second": 1500.4, "cpu_ms_per_event": 0.71, "p50_ms": 900, "p95_ms": 2000, "p99_ms": 2100}
    plain = {"events_per_second": 5000.0, "cpu_ms_per_event": 0.08}
    found = {"standard": {**ours, "floor": plain}, "urgent": {**ours, "floor": plain}, "steady": {"rate": 20.0}}
    said = figures.lines({"line": {**found, "peer_killed": {"kills": 5, "lost": 2, "again": 7}}})
    assert [line.split("  ")[0] for line in said[1:5]] == [
        *("standard, csi", "standard, plain loop", "urgent, csi", "urgent, plain loop"),
    ]
    assert "1500" in said[1]
    assert said[-1] == "Celery and Redis, killed 5 times: 2 lost, 7 sent again"
    assert figures.lines({"startup": {}}) == []


@pytest.mark.faults
def test_high_volume_loses_nothing_and_reading_slows_down():
    found = run("ops.bench", "highvolume", timeout=900)["highvolume"]
    for name in ("batches", "streaming"):
        one = found[name]
        assert (one["lost"], one["extra"], one["again"]) == (0, 0, 0), one
        assert one["published"] == one["delivered"] >= 19_000
        assert one["most_waiting"] <= one["limit"]
        assert one["memory_growth_mb"] < 48
    assert found["batches"]["slowest"] >= 1.5
    assert found["batches"]["problem_shown"] == 1
