"""An error that comes again is one line a minute, with its number, and the next error of its kind a line at once."""

from csi.logs import RepeatedErrors


class Steady:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def test_the_first_is_logged_at_once_and_the_others_are_counted():
    steady = Steady()
    errors = RepeatedErrors(60.0, steady)
    assert errors.count("locked") == {}
    assert errors.count("full") == {}
    for _ in range(184):
        steady.now += 0.3
        assert errors.count("locked") is None
    steady.now = 161.0
    assert errors.count("locked") == {"repeated": 185}


def test_an_error_that_is_over_is_named_with_its_duration_and_logged_at_once_when_it_comes_back():
    steady = Steady()
    errors = RepeatedErrors(60.0, steady)
    errors.count("locked")
    steady.now += 10
    errors.count("locked")
    assert errors.take_ended() == {}
    steady.now += 16
    assert errors.take_ended() == {"locked": 10.0}
    assert errors.take_ended() == {}
    assert errors.count("locked") == {}
