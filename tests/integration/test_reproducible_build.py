"""What a release is made of: reproducible wheels, and the list of its components."""

import hashlib
import json
import re
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


def test_the_list_of_components_names_every_locked_package_and_is_reproducible(tmp_path):
    """`make sbom`"""
    made = []
    for name in ("first.json", "second.json"):
        line = [Path(sys.executable).with_name("cyclonedx-py"), "requirements", "requirements.lock"]
        line += ["--output-reproducible", "--of", "JSON", "-o", tmp_path / name]
        subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=120)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    locked = re.findall(r"^([a-z0-9._-]+)(?:\[[^]]*\])?==([^ \\;]+)", (ROOT / "requirements.lock").read_text(), re.M)
    listed = {(one["name"], one["version"]) for one in json.loads(made[0])["components"]}
    assert len(locked) > 10
    assert set(locked) <= listed
