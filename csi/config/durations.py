"""Parse durations: `90s`, `5m`, `1h30m`, `1.5 hours`. By hand: the libraries for this accept almost any text."""

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_WORDS = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d", "week": "w"}
_LONGEST = 3660 * 86400.0
_EXPECTED = "expected seconds (90, 1.5) or a duration (90s, 5m, 1h30m)"
_ISO = re.compile(
    r"P(?:(\d{1,6})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})(?:\.\d+)?S)?)?", re.ASCII
)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")


def parse_duration(text: str) -> float:
    """Seconds. The message of the ValueError says what is accepted."""
    rest, total = text.strip().lower(), 0.0
    while match := _PART.match(rest):
        unit = _WORDS.get(match[2].removesuffix("s"), match[2])
        if unit not in _UNITS:
            raise ValueError(f"{text[:40]!r} has the unknown unit {match[2][:20]!r}; known are ms, s, m, h, d, w")
        total += float(match[1]) * _UNITS[unit]
        rest = rest[match.end() :]
    if rest or not text.strip() or not math.isfinite(total):
        raise ValueError(f"{text[:40]!r} is not a duration; write a number with a unit, as in 90s, 5m, 1h30m, 90d")
    return total


def parse_since(text: str) -> float:
    """Seconds before now: `1h` or `1 hour ago`."""
    rest = text.strip()
    if rest[-4:].lower() == " ago":
        rest = rest[:-4]
    return parse_duration(rest)


def _seconds(value: Any) -> float:
    """A bare number is seconds. The message does not repeat the value: it may come from a variable."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(_EXPECTED)
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            raise ValueError(_EXPECTED) from error
    if not 0 <= seconds <= _LONGEST:
        raise ValueError("expected a duration of 0 seconds to 10 years")
    return seconds


Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str), PlainSerializer(float)]


def duration_seconds(text: Any) -> int | None:
    """Seconds of `PT21M7S` or `P1DT2H`. None: not a duration, or the `P0D` of a stream that has not ended."""
    match = _ISO.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    units = zip((604_800, 86_400, 3_600, 60, 1), match.groups(), strict=True)
    return sum(seconds * int(count or 0) for seconds, count in units) or None
