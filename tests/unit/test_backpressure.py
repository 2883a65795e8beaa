from csi.scheduling.backpressure import slowdown


def test_reading_slows_down_from_half_of_the_limit_and_stops_at_it():
    factors = [slowdown(waiting, 1000) for waiting in (0, 499, 500, 750, 999, 1000, 5000)]
    assert factors[:3] == [1.0, 1.0, 1.0]
    assert factors[3] == 4.5
    assert 7.9 < factors[4] < 8.0
    assert factors[5:] == [None, None]


def test_without_a_limit_nothing_slows_down():
    assert slowdown(10**9, 0) == 1.0
