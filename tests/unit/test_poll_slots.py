"""Slots for reading: which watch gets one, which waits, and which is called next."""

import pytest

from csi.runtime import Share
from csi.scheduling.poll_concurrency import PollSlots

FEEDS, API = "www.youtube.com", "www.googleapis.com"


def crowd(poll_slots: PollSlots, host: str, count: int, *, slots: int, first: int = 1) -> list[bool]:
    numbers = range(first, first + count)
    return [poll_slots.acquire(number, host, slots, urgent=False, due_at=float(number)) for number in numbers]


def test_one_host_leaves_slots_for_the_others():
    poll_slots = PollSlots()
    assert crowd(poll_slots, FEEDS, 12, slots=12).count(True) == 10
    assert poll_slots.acquire(99, API, 12, urgent=False, due_at=0.0)


def test_a_single_slot_is_for_any_host():
    assert crowd(PollSlots(), FEEDS, 2, slots=1) == [True, False]


def test_the_longest_waiting_watch_is_called_when_a_slot_is_free():
    poll_slots = PollSlots()
    crowd(poll_slots, FEEDS, 4, slots=2)
    assert poll_slots.call_next(2) is None
    poll_slots.release(FEEDS)
    assert poll_slots.call_next(2) == 2


def test_an_urgent_watch_is_called_before_those_that_waited_longer():
    poll_slots = PollSlots()
    crowd(poll_slots, FEEDS, 3, slots=1)
    poll_slots.acquire(50, API, 1, urgent=True, due_at=99.0)
    poll_slots.release(FEEDS)
    assert poll_slots.call_next(1) == 50


def test_no_watch_is_called_for_a_host_that_is_full():
    poll_slots = PollSlots()
    crowd(poll_slots, FEEDS, 12, slots=12)
    crowd(poll_slots, API, 4, slots=12, first=50)
    poll_slots.release(API)
    assert poll_slots.call_next(12) == 52


def test_a_watch_that_is_woken_twice_waits_in_line_once():
    poll_slots = PollSlots()
    crowd(poll_slots, FEEDS, 2, slots=1)
    crowd(poll_slots, FEEDS, 2, slots=1)
    poll_slots.release(FEEDS)
    assert [poll_slots.call_next(1) for _ in range(3)] == [1, 2, None]


@pytest.mark.parametrize(
    ("threads", "polls", "requests", "urgent"),
    [(1, 1, 1, 1), (2, 1, 1, 1), (4, 1, 1, 1), (8, 5, 1, 1), (16, 10, 3, 2), (32, 21, 6, 4)],
)
def test_threads_are_shared_between_reading_and_sending(threads, polls, requests, urgent):
    share = Share(threads)
    assert (share.polls, share.requests, share.urgent) == (polls, requests, urgent)


def test_threads_for_streamed_events_are_added_to_the_others():
    share = Share(24, streaming=10)
    assert (share.total, share.polls, share.requests, share.urgent) == (34, 16, 4, 3)
