"""The transitions of a destination, without a database."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from csi.pipeline import destination_state
from csi.store.destinations import DestinationRow

NOW = 1_000_000.0
ROW = DestinationRow("default")
OPEN = destination_state.tripped(ROW, NOW, "http 503")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("row", "seconds", "state"),
    [
        (ROW, 0, "accepting"),
        (destination_state.throttled(ROW, NOW, NOW + 40, "http 429"), 39, "throttled"),
        (destination_state.throttled(ROW, NOW, NOW + 40, "http 429"), 40, "accepting"),
        (OPEN, 4, "circuit_open"),
        (OPEN, 5, "half_open"),
        (destination_state.paused(OPEN, NOW, "maintenance"), 4, "paused"),
        (destination_state.resumed(destination_state.paused(OPEN, NOW, "maintenance")), 4, "circuit_open"),
        (replace(ROW, throttled_until=NOW + 86_400), 0, "accepting"),  # further off than any rule: a clock jumped
        (replace(OPEN, next_probe_at=NOW + 86_400), 0, "half_open"),
    ],
)
def test_the_state_follows_from_the_row_and_the_time(row, seconds, state):
    assert destination_state.judge(row, NOW + seconds) == state


def test_while_the_canary_is_sent_no_probe_is():
    assert destination_state.judge(OPEN, NOW + 60, canary_is_sending=True) == "circuit_open"


def test_a_circuit_that_is_open_keeps_its_time_and_takes_the_newest_reason():
    again = destination_state.tripped(OPEN, NOW + 9, "http 401", canary=7)
    assert (again.opened_at, again.canary, again.reason, again.last_error) == (NOW, None, "http 401", "http 401")
    assert destination_state.failed(ROW, NOW, "timeout").reason is None


def test_probes_come_at_most_20_seconds_apart():
    row, waits = OPEN, []
    for _ in range(4):
        row = destination_state.probed(row, NOW)
        waits.append(row.next_probe_at - NOW)
    assert waits == [5, 10, 20, 20]


def test_a_success_closes_the_circuit_and_the_concurrency_ramps_up():
    row = destination_state.succeeded(OPEN, NOW + 60, sent_at=NOW + 59)
    assert (row.circuit, row.reason, row.opened_at, row.last_success_at) == ("closed", None, None, NOW + 60)
    ramps = []
    for _ in range(7):
        ramps.append(destination_state.concurrency(row, 100))
        row = destination_state.succeeded(row, NOW + 61, sent_at=NOW + 60)
    assert ramps == [1, 2, 4, 8, 16, 32, 100]


def test_an_answer_older_than_the_throttle_does_not_end_it():
    row = destination_state.throttled(ROW, NOW + 2, NOW + 40, "http 429")
    assert destination_state.succeeded(row, NOW + 3, sent_at=NOW + 1).throttled_until == NOW + 40
    assert destination_state.succeeded(row, NOW + 42, sent_at=NOW + 41).throttled_until is None


def test_the_latest_retry_after_counts_unless_a_clock_jumped():
    row = destination_state.throttled(ROW, NOW, NOW + 40, "http 429")
    assert destination_state.throttled(row, NOW, NOW + 10, "http 429").throttled_until == NOW + 40
    ahead = destination_state.throttled(ROW, NOW + 86_400, NOW + 86_430, "http 429")
    assert destination_state.throttled(ahead, NOW, NOW + 40, "http 429").throttled_until == NOW + 40


def test_five_refused_events_and_none_accepted_is_the_receivers_fault():
    assert not destination_state.refuses_all(ROW, 4)
    assert destination_state.refuses_all(ROW, 5)
    assert destination_state.refuses_all(replace(OPEN, reason=f"{destination_state.REFUSES_ALL}: http 400"), 0)


def test_only_one_function_of_the_product_writes_the_row():
    writers = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "csi").rglob("*.py")
        if "destinations.change(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "destinations.change"
    ]
    assert writers == ["csi/pipeline/destination_state.py"]
