"""The demo's summary of small ledgers."""

from dataclasses import replace

import pytest

from csi.demo.reconciliation import EventRecord, LedgerContents, percentile, summarize, summary_sentence


def arrived(name: str, seconds: float = 0.1) -> EventRecord:
    return EventRecord(f"id-{name}", name, "delivered", 100.0, 100.0 + seconds)


def waiting(name: str, state: str = "pending") -> EventRecord:
    return EventRecord(f"id-{name}", name, state, 100.0)


HEALTHY = LedgerContents(frozenset({"a", "b"}), (arrived("a"), arrived("b", 0.3)), ("id-a", "id-b"))


def test_everything_arrived_once() -> None:
    summary = summarize(HEALTHY)
    assert (summary.served, summary.events, summary.delivered) == (2, 2, 2)
    assert (summary.dead, summary.pending, summary.lost, summary.extra, summary.unexpected) == (0, 0, 0, 0, 0)
    assert (summary.p50_ms, summary.p95_ms) == (100.0, 300.0)
    assert summary_sentence(summary) == "Every served item was delivered, each exactly once."


def test_nothing_happened() -> None:
    summary = summarize(LedgerContents())
    assert (summary.served, summary.events, summary.lost) == (0, 0, 0)
    assert summary.p50_ms is None
    assert summary.p95_ms is None
    assert summary_sentence(summary).startswith("Nothing was published")


def test_an_item_that_was_served_and_never_stored_is_lost() -> None:
    summary = summarize(replace(HEALTHY, served=frozenset({"a", "b", "c"})))
    assert summary.lost == 1
    assert summary_sentence(summary).startswith("1 item did not arrive")


def test_an_item_in_the_inbox_is_pending_and_counts_as_lost() -> None:
    summary = summarize(replace(HEALTHY, served=frozenset({"a", "b", "c"}), inbox=1))
    assert (summary.pending, summary.lost) == (1, 1)


def test_a_delivered_event_that_the_receiver_does_not_have_is_lost() -> None:
    assert summarize(replace(HEALTHY, received=("id-a",))).lost == 1


@pytest.mark.parametrize("state", ["pending", "in_flight"])
def test_pending_and_in_flight_events_are_pending(state: str) -> None:
    summary = summarize(LedgerContents(frozenset({"a"}), (waiting("a", state),)))
    assert (summary.pending, summary.delivered, summary.lost) == (1, 0, 1)


def test_an_event_accepted_before_its_row_is_updated_is_not_lost() -> None:
    """The receiver has the event, and its response is in flight."""
    summary = summarize(LedgerContents(frozenset({"a"}), (waiting("a", "in_flight"),), ("id-a",)))
    assert (summary.pending, summary.lost) == (1, 0)


def test_dead_letters_are_not_lost() -> None:
    contents = LedgerContents(frozenset({"a"}), (waiting("a", "dead"),), dead=("id-a",))
    summary = summarize(contents)
    assert (summary.dead, summary.pending, summary.lost) == (1, 0, 0)
    assert summary_sentence(summary).startswith("Nothing was lost: 1 item in the dead letter queue")


def test_a_dead_letter_that_was_closed_without_delivery_is_lost() -> None:
    assert summarize(LedgerContents(frozenset({"a"}), (waiting("a", "dead"),))).lost == 1


def test_an_item_with_a_dead_letter_under_its_key_is_not_lost() -> None:
    """Malformed items never become events: their dead letter carries the item's key."""
    summary = summarize(replace(HEALTHY, served=frozenset({"a", "b", "bad"}), dead=("bad",)))
    assert (summary.lost, summary.dead) == (0, 1)


def test_every_delivery_after_the_first_is_extra() -> None:
    summary = summarize(replace(HEALTHY, received=("id-a", "id-b", "id-a", "id-a")))
    assert (summary.extra, summary.lost) == (2, 0)
    assert "2 items more than once" in summary_sentence(summary)


def test_items_that_were_not_served_or_not_stored_are_unexpected() -> None:
    summary = summarize(replace(HEALTHY, served=frozenset({"a"}), received=("id-a", "id-b", "id-x")))
    assert (summary.unexpected, summary.lost) == (2, 0)


@pytest.mark.parametrize(
    ("numbers", "percent", "expected"),
    [
        ([], 50, None),
        ([7], 50, 7),
        ([7], 95, 7),
        ([1, 2], 50, 1),
        ([1, 2, 3], 50, 2),
        (list(range(1, 101)), 95, 95),
        (list(range(1, 21)), 95, 19),
        (list(range(1, 20)), 95, 19),
    ],
)
def test_percentiles_are_measured_values(numbers: list[float], percent: float, expected: float | None) -> None:
    assert percentile(numbers, percent) == expected
