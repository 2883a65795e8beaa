"""Exclusive sections: one thread at a time, and no thread keeps its section while it waits for the network."""

import threading

from csi.exclusive_section import ExclusiveSection, released


def taken_by_another(section: ExclusiveSection, seconds: float = 10.0) -> bool:
    """Whether another thread gets it within this time."""
    got = threading.Event()

    def enter() -> None:
        with section:
            got.set()

    threading.Thread(target=enter, daemon=True).start()
    return got.wait(seconds)


def test_the_thread_that_entered_keeps_the_section_and_may_enter_again():
    section = ExclusiveSection()
    with section, section:
        assert not taken_by_another(section, 0.05)
    assert taken_by_another(section)


def test_a_released_section_is_free_and_is_entered_again_afterwards():
    section = ExclusiveSection()
    with section, section:
        with released():
            assert taken_by_another(section)
        assert not taken_by_another(section, 0.05)
    assert taken_by_another(section)
