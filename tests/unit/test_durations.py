"""The strict duration grammar, and the config's looser one in which a bare number is seconds."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from csi.config.durations import Seconds, parse_duration, parse_since

CONFIG = TypeAdapter(Seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1.5 hours", 5400),
        ("90d", 7_776_000),
        ("2 weeks", 1_209_600),
        ("250ms", 0.25),
        (" 10 Min ", 600),
    ],
)
def test_durations_that_are_understood(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["30", "soon", "", "  ", "5 parsecs", "m", "-5m", "5m-", "1h30", "\uff11d", "9" * 400 + "s"]
)
def test_durations_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_duration(text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(("text", "seconds"), [("1 hour ago", 3600), ("1h", 3600), (" 2d 3h AGO ", 183_600)])
def test_since_may_say_ago(text: str, seconds: float) -> None:
    assert parse_since(text) == seconds


@pytest.mark.parametrize(
    "text", ["30", "30 ago", "soon", "ago", " ago", "1 hour agoago", "ago 1h", "an hour ago", "1hago"]
)
def test_since_is_as_strict(text: str) -> None:
    with pytest.raises(ValueError):
        parse_since(text)


@pytest.mark.parametrize(("value", "seconds"), [(90, 90), (1.5, 1.5), ("5m", 300), ("90", 90), ("1.5", 1.5), (0, 0)])
def test_config_takes_bare_numbers_as_seconds(value: object, seconds: float) -> None:
    assert CONFIG.validate_python(value) == seconds


@pytest.mark.parametrize("value", [True, None, [], {}, -1, "-5m", "soon", math.nan, math.inf, "inf", 10**400, "11y"])
def test_config_refuses_what_is_no_time(value: object) -> None:
    with pytest.raises(ValidationError, match="expected"):
        CONFIG.validate_python(value)


@given(st.text())
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert math.isfinite(parse_duration(text))
