"""What an HTTP answer says beside its items: how long to wait, how long it stays fresh, how to ask again."""

import json
from typing import Any

from csi import clock
from csi.errors import NetError, SourceError
from csi.net import HttpResponse

LONGEST_WAIT = 3600.0
LONGEST_KEPT = 21_600.0
"""Shorter than the shortest life of a dedupe key, by enough: see `kept`."""

LONGEST_FRESH = 86_400.0
MAX_VALIDATOR = 256
_KINDS = {"paused": "paused", "busy": "paused", "too_large": "malformed", "bad_encoding": "malformed"}


def unreachable(error: NetError, what: str) -> SourceError:
    """Our error for an exchange that gave no complete answer."""
    wait = getattr(error, "retry_after", None)
    return SourceError(f"{what}: {error}", kind=_KINDS.get(error.kind, "transient"), retry_after=wait)


def json_object(answer: HttpResponse) -> dict[str, Any] | None:
    """The body as a JSON object. None: it is something else, or nested too deep to be read."""
    try:
        parsed = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def retry_after(answer: HttpResponse, now: float) -> float | None:
    """Seconds to wait, 1 to an hour: a number or a date. None: not told, or not in a way that can be read."""
    seconds = _seconds(answer.headers.get("retry-after", ""), now)
    return None if seconds is None else min(max(seconds, 1.0), LONGEST_WAIT)


def fresh_until(answer: HttpResponse, now: float) -> float | None:
    """Until when caches give this same answer: max-age less its Age, else Expires. At most a day ahead."""
    directives = [part.strip().lower() for part in answer.headers.get("cache-control", "").split(",")]
    if "no-store" in directives or "no-cache" in directives:
        return None
    left = _max_age(directives)
    if left is None:
        left = _until_expiry(answer, now)
    if left is None:
        return None
    return now + min(max(left - (_number(answer.headers.get("age", "")) or 0.0), 0.0), LONGEST_FRESH)


def validator(answer: HttpResponse, name: str) -> str | None:
    """An ETag or Last-Modified worth sending back: short, and of characters that a header can carry."""
    value = answer.headers.get(name, "").strip()
    return value if is_sendable(value) else None


def is_sendable(value: str) -> bool:
    plain = value.isascii() and value.isprintable() and value == value.strip()
    return plain and 0 < len(value) <= MAX_VALIDATOR


def keep(value: str | None, mark: str, now: float) -> str | None:
    """A validator as a watch stores it: with whose it is, and when the whole answer was read."""
    return None if value is None else f"{mark}:{int(now)}:{value}"


def kept(stored: str | None, mark: str, now: float) -> str | None:
    """The validator to send. None where it is another source's, or six hours old: a whole answer is read now and then,
    because only that shows which items are still there, and what is not seen for `dedupe_days` is forgotten."""
    whose, _, rest = (stored or "").partition(":")
    at, _, value = rest.partition(":")
    fresh = whose == mark and at.isdigit() and 0 <= now - int(at[:12]) < LONGEST_KEPT
    return value if fresh and value else None


def _max_age(directives: list[str]) -> float | None:
    ages = [_number(part.partition("=")[2].strip('"')) for part in directives if part.startswith("max-age=")]
    return next((age for age in ages if age is not None), None)


def _until_expiry(answer: HttpResponse, now: float) -> float | None:
    """Counted from the server's own Date where it has one: clocks differ."""
    expires = _moment(answer.headers.get("expires", ""))
    made = _moment(answer.headers.get("date", ""))
    return None if expires is None else expires - (now if made is None else made)


def _seconds(text: str, now: float) -> float | None:
    number = _number(text)
    if number is not None:
        return number
    moment = _moment(text)
    return None if moment is None else moment - now


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text[:9]) if text.isascii() and text.isdigit() else None


def _moment(text: str) -> float | None:
    try:
        return clock.parse(text) if text else None
    except (ValueError, OverflowError):
        return None
