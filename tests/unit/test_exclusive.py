"""Turns at a desk: one thread at a time, and nobody keeps it while the network makes him wait."""

import threading

from csi.exclusive_section import ExclusiveSection, left


def taken_by_another(desk: ExclusiveSection, seconds: float = 10.0) -> bool:
    """Whether another thread gets it within this time."""
    got = threading.Event()

    def sit_down() -> None:
        with desk:
            got.set()

    threading.Thread(target=sit_down, daemon=True).start()
    return got.wait(seconds)


def test_who_has_the_desk_keeps_it_and_may_sit_down_again():
    desk = ExclusiveSection()
    with desk, desk:
        assert not taken_by_another(desk, 0.05)
    assert taken_by_another(desk)


def test_a_desk_that_was_left_is_free_and_comes_back():
    desk = ExclusiveSection()
    with desk, desk:
        with left():
            assert taken_by_another(desk)
        assert not taken_by_another(desk, 0.05)
    assert taken_by_another(desk)
