"""One line for each finding of docs/security.md: its quick tests, run together, and how many passed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = re.findall(r"^\| S(\d+) \| (.*) \| (`tests/.*`) \|$", (ROOT / "docs/security.md").read_text(), re.M)


@pytest.mark.faults
@pytest.mark.parametrize(("number", "what", "tests"), FINDINGS, ids=[f"S{row[0]}" for row in FINDINGS])
def test_finding(record_property, number, what, tests):
    """Those in tests/faults have lines of their own in the same run."""
    named = re.findall(r"`(tests/[^`]+)`", tests)
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    line += [name for name in named if not name.startswith("tests/faults/")]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=900)
    passed = re.search(r"(\d+) passed", done.stdout)
    record_property("oracle", f"finding {number} S{number} {what}: passed={passed[1] if passed else 0}")
    assert done.returncode == 0, done.stdout[-2000:]
