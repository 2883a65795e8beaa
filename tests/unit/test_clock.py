"""Timestamps: read in every form the sources send, written in one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi import clock


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2019-11-23T00:45:05.000Z", "2019-11-23T00:45:05Z"),
        ("2023-05-11T00:20:46Z", "2023-05-11T00:20:46Z"),
        ("2011-09-23T04:52:01.295891Z", "2011-09-23T04:52:01Z"),
        ("2026-02-22T12:00:00+00:00", "2026-02-22T12:00:00Z"),
        ("2026-02-22T12:00:00-0800", "2026-02-22T20:00:00Z"),
        ("2026-02-22 12:00:00", "2026-02-22T12:00:00Z"),
        ("Sun, 22 Feb 2026 12:00:00 GMT", "2026-02-22T12:00:00Z"),
    ],
)
def test_normalize(text, written):
    assert clock.normalize(text) == written


@given(st.text(max_size=60))
def test_what_is_not_a_time_is_a_value_error(text):
    try:
        written = clock.iso(clock.parse(text))
    except ValueError:
        return
    assert clock.normalize(written) == written


@given(st.integers(0, 4_000_000_000))
def test_round_trip(epoch):
    assert clock.parse(clock.iso(epoch)) == epoch
