"""One oracle line per case, printed when it ends and once more in a table after the last."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.oracle import Account, Bounds, Ledgers, judge, line, violations


class Case:
    """A case of the catalogue. It has to speak: one that ends without an oracle line has not passed."""

    def __init__(self, number: str, name: str, record: Callable[[str, str], None]) -> None:
        self.number, self.name, self._record = number, name, record
        self.lines: list[str] = []

    def close(self, books: Ledgers, bounds: Bounds | None = None, **more: Any) -> Account:
        """The verdict: the line, and every invariant within its bound."""
        account, bounds = judge(books), bounds or Bounds()
        self._say(line(account, bounds, **more))
        broken = violations(account, bounds)
        assert not broken, f"{', '.join(broken)}: {self.lines[-1]}"
        return account

    def note(self, **numbers: Any) -> None:
        """A line of numbers for a case without a line of events. The test itself holds them against its bounds."""
        self._say(" ".join(f"{name}={value}" for name, value in numbers.items()))

    def _say(self, text: str) -> None:
        self.lines.append(f"case {self.number} {self.name}: {text}")
        self._record("oracle", self.lines[-1])


@pytest.fixture
def case(request: pytest.FixtureRequest, record_property: Any) -> Iterator[Case]:
    number, name = _named(request.node.name)
    found = Case(number, name, record_property)
    yield found
    assert found.lines, "the case ended without its oracle line"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed"))


def _named(test: str) -> tuple[str, str]:
    """`test_case_13_always_503[urgent]` → `13`, `always-503 [urgent]`."""
    match = re.fullmatch(r"test_case_(\d+)_([^\[]+)(\[.*\])?", test)
    assert match, f"{test} has no number: test_case_13_always_503"
    return match[1], match[2].replace("_", "-") + (f" {match[3]}" if match[3] else "")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The final table: every line by its number, with what pytest made of it."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    spoken = [(report, text) for report in reports for text in _lines(report)]
    if spoken:
        terminalreporter.section("the oracle's lines")
    for report, text in sorted(spoken, key=lambda pair: (pair[1].split()[0], int(pair[1].split()[1]))):
        outcome = "known" if hasattr(report, "wasxfail") else report.outcome
        terminalreporter.write_line(f"{outcome:7} {text}")


def _lines(report: Any) -> list[str]:
    if getattr(report, "when", None) != "call":
        return []
    return [text for name, text in report.user_properties if name == "oracle"]
