"""The strict grammar of a duration: `90s`, `5m`, `1h30m`, `1.5 hours`; never a bare number, never a word."""

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_WORDS = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d", "week": "w"}
_LONGEST = 3660 * 86400.0
_EXPECTED = "expected seconds (90, 1.5) or a duration (90s, 5m, 1h30m)"
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")


def parse_duration(text: str) -> float:
    """Seconds. ValueError says what is accepted."""
    rest, total = text.strip().lower(), 0.0
    while match := _PART.match(rest):
        total += float(match[1]) * _unit(match[2], text)
        rest = rest[match.end() :]
    if rest or not text.strip() or not math.isfinite(total):
        raise ValueError(f"{text[:40]!r} is not a duration; write a number with a unit, as in 90s, 5m, 1h30m, 90d")
    return total


def parse_since(text: str) -> float:
    """Seconds before now: a duration, as in `1h`, or the same said backwards, as in `1 hour ago`."""
    rest = text.strip()
    if rest[-4:].lower() == " ago":
        rest = rest[:-4]
    return parse_duration(rest)


def _unit(word: str, text: str) -> float:
    unit = _WORDS.get(word.removesuffix("s"), word)
    if unit not in _UNITS:
        raise ValueError(f"{text[:40]!r} has the unknown unit {word[:20]!r}; known are ms, s, m, h, d, w")
    return _UNITS[unit]


def _seconds(value: Any) -> float:
    """In a config a bare number is seconds. The message leaves the value out: it may come from a variable."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(_EXPECTED)
    try:
        seconds = _number(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(_EXPECTED) from error
    if not 0 <= seconds <= _LONGEST:
        raise ValueError("expected a duration of 0 seconds to 10 years")
    return seconds


def _number(value: int | float | str) -> float:
    try:
        return float(value)
    except ValueError:
        return parse_duration(str(value))


Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str), PlainSerializer(float)]
