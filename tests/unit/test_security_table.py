"""docs/security.md links each finding to tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKED = re.findall(r"^\| S(\d+) \| .* \| (`tests/.*`) \|$", (ROOT / "docs/security.md").read_text(), re.M)


def test_every_finding_has_its_row():
    assert [int(number) for number, _ in LINKED] == list(range(1, len(LINKED) + 1))
    assert len(LINKED) >= 22


def test_every_linked_test_exists_and_runs_without_faults():
    for number, tests in LINKED:
        named = re.findall(r"`(tests/[^`]+)`", tests)
        assert any(not name.startswith("tests/faults/") for name in named), f"S{number}: no quick test"
        for name in named:
            path, _, test = name.partition("::")
            text = (ROOT / path).read_text()
            assert re.search(rf"^(?:async )?def {test or 'test_'}", text, re.M), f"S{number}: {name}"
