"""Places for reading: who gets one, who waits, and who is called next."""

import pytest

from csi.pipeline.poll_slots import Turns
from csi.runtime import Share
from csi.store.watches import Glance

FEEDS, API = "www.youtube.com", "www.googleapis.com"


def watch(number: int, *, tier: str = "standard", due: float = 0.0) -> Glance:
    return Glance(number, "source", f"ref{number}", "feed", tier, due, None, 300.0)


def crowd(turns: Turns, host: str, count: int, *, places: int, first: int = 1) -> list[bool]:
    return [turns.take(watch(number, due=float(number)), host, places) for number in range(first, first + count)]


def test_one_host_leaves_places_for_the_others():
    turns = Turns()
    assert crowd(turns, FEEDS, 12, places=12).count(True) == 10
    assert turns.take(watch(99), API, 12)


def test_a_single_place_is_for_whoever_comes():
    assert crowd(Turns(), FEEDS, 2, places=1) == [True, False]


def test_who_waited_longest_is_called_when_a_place_is_free():
    turns = Turns()
    crowd(turns, FEEDS, 4, places=2)
    assert turns.call(2) is None
    turns.leave(FEEDS)
    assert turns.call(2) == 2


def test_an_urgent_watch_is_called_before_those_who_waited_longer():
    turns = Turns()
    crowd(turns, FEEDS, 3, places=1)
    turns.take(watch(50, tier="urgent", due=99.0), API, 1)
    turns.leave(FEEDS)
    assert turns.call(1) == 50


def test_nobody_is_called_for_a_host_that_is_full():
    turns = Turns()
    crowd(turns, FEEDS, 12, places=12)
    crowd(turns, API, 4, places=12, first=50)
    turns.leave(API)
    assert turns.call(12) == 52


def test_a_watch_that_is_woken_twice_stands_in_line_once():
    turns = Turns()
    crowd(turns, FEEDS, 2, places=1)
    crowd(turns, FEEDS, 2, places=1)
    turns.leave(FEEDS)
    assert [turns.call(1) for _ in range(3)] == [1, 2, None]


@pytest.mark.parametrize(
    ("threads", "polls", "requests", "urgent"),
    [(1, 1, 1, 1), (2, 1, 1, 1), (4, 1, 1, 1), (8, 5, 1, 1), (16, 10, 3, 2), (32, 21, 6, 4)],
)
def test_threads_are_shared_between_reading_and_sending(threads, polls, requests, urgent):
    share = Share(threads)
    assert (share.polls, share.requests, share.urgent) == (polls, requests, urgent)
