"""Two builds of the wheel from the same files have the same hash."""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_two_builds_of_the_wheel_are_the_same(tmp_path):
    hashes = []
    for name in ("first", "second"):
        target = tmp_path / name
        line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
        subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=120)
        (wheel,) = target.glob("creator_signals-*.whl")
        hashes.append((wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()))
    assert hashes[0] == hashes[1]
