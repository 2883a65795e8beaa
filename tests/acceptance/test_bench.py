"""The benches run, and say what they measured: few events and few channels, so only their form is judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*line: str) -> dict:
    done = subprocess.run([sys.executable, "-m", *line], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_line_is_measured_beside_a_plain_loop():
    found = run("ops.bench.line", "--count", "20", "--json")
    assert found["count"] == 20
    assert min(found[tier]["ratio_to_floor"] for tier in ("urgent", "standard")) > 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the bench reads /proc, which only Linux has")
def test_a_round_of_channels_is_measured_beside_the_limits():
    found = run("ops.bench.poll", "--channels", "6", "--latency", "0.01", "--seconds", "1", "--json")
    assert found["channels"] == 6
    assert 0 < found["cold_seconds"] < 60
    assert 10 < found["peak_mb"] < 512
    assert len(found["limits"]) == 3
