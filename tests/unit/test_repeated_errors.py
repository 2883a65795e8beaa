"""An error that comes again is one line a minute, with its number, and the next error of its kind a line at once."""

from loguru import logger

from csi.logs import RepeatedErrors
from csi.web.shared_state import Sidecar


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


def test_the_sidecar_logs_an_error_of_every_request_once_a_minute():
    steady, lines = Steady(), []
    sidecar = Sidecar(lambda: None)
    sidecar._errors = RepeatedErrors(steady=steady)
    sink = logger.add(lambda message: lines.append((message.record["message"], message.record["extra"])))
    for _ in range(120):
        sidecar.warn("health not readable", "the database is locked")
        steady.now += 1
    logger.remove(sink)
    assert [text for text, _ in lines] == ["health not readable"] * 2
    assert lines[1][1]["repeated"] == 60
