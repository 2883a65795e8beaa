"""docs/security.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_finding_of_the_table_has_tests_that_exist():
    text = (ROOT / "docs/security.md").read_text()
    rows = re.findall(r"^\| (S\d+) \|.*\| (`tests/.*`) \|$", text, re.M)
    assert len(rows) >= 19
    for number, tests in rows:
        for path in re.findall(r"`(tests/[^`]+)`", tests):
            assert (ROOT / path).is_file(), f"{number}: {path}"
