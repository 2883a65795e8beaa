"""How often the pulse looks at the rows: always where somebody wrote, once a second where nobody did."""

import pytest

from csi.pipeline import rescue
from csi.store import counters, db
from tests.fakes.line import Line

PULSE = 0.25


@pytest.fixture
def line(tmp_path, clock):
    built = Line(tmp_path, clock, "http://127.0.0.1:9/nobody", sources={})
    with db.connection():
        yield built


def looks(line, clock, seconds):
    """How many of the pulses of so many seconds look at the rows."""
    found = 0
    for _ in range(int(seconds / PULSE)):
        clock.move(PULSE)
        found += not rescue.is_still(line.rt)
    return found


def write_elsewhere():
    """From another connection: one thread has one."""
    from threading import Thread

    def write():
        with db.connection(), db.writing():
            counters.add("anything")

    other = Thread(target=write)
    other.start()
    other.join()


def test_at_rest_there_is_a_look_a_second(line, clock):
    looks(line, clock, 10)
    assert looks(line, clock, 10) == 10


def test_after_a_write_every_pulse_looks_for_a_while(line, clock):
    looks(line, clock, 10)
    write_elsewhere()
    assert looks(line, clock, rescue.STILL_AFTER) == rescue.STILL_AFTER / PULSE


def test_a_clock_that_goes_back_does_not_make_the_pulse_blind(line, clock):
    looks(line, clock, 10)
    clock.move(-3600)
    assert not rescue.is_still(line.rt)
