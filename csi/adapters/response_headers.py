"""Retry-After, cache lifetime and validators of an HTTP response, within bounds."""

from csi import clock
from csi.errors import NetError, SourceError
from csi.net import HttpResponse

LONGEST_WAIT = 3600.0
LONGEST_KEPT = 21_600.0
"""Much shorter than the shortest life of a dedupe key: see `validator_to_send`."""

LONGEST_FRESH = 86_400.0
MAX_VALIDATOR = 256
_KINDS = {
    "paused": "paused",
    "busy": "paused",
    "paced": "paused",
    "too_large": "malformed",
    "bad_encoding": "malformed",
    "private": "denied",
}


def unreachable(error: NetError, what: str) -> SourceError:
    """The SourceError for an exchange that gave no complete response."""
    kind = _KINDS.get(error.kind, "transient")
    return SourceError(f"{what}: {error}", kind=kind, retry_after=error.retry_after)


def retry_after(answer: HttpResponse, now: float) -> float | None:
    """Seconds to wait, from 1 s to an hour; the header is a number or a date. None: missing or not readable."""
    text = answer.headers.get("retry-after", "")
    seconds, moment = _number(text), _moment(text)
    if seconds is None and moment is not None:
        seconds = moment - now
    return None if seconds is None else min(max(seconds, 1.0), LONGEST_WAIT)


def fresh_until(answer: HttpResponse, now: float) -> float | None:
    """Until when caches serve this same response: max-age minus Age, else Expires. At most a day ahead."""
    directives = [part.strip().lower() for part in answer.headers.get("cache-control", "").split(",")]
    if "no-store" in directives or "no-cache" in directives:
        return None
    ages = [_number(part.partition("=")[2].strip('"')) for part in directives if part.startswith("max-age=")]
    left = next((age for age in ages if age is not None), None)
    if left is None:
        expires, date = _moment(answer.headers.get("expires", "")), _moment(answer.headers.get("date", ""))
        if expires is None:
            return None
        left = expires - (now if date is None else date)  # from the server's own Date: its clock may differ from ours
    return now + min(max(left - (_number(answer.headers.get("age", "")) or 0.0), 0.0), LONGEST_FRESH)


def validator(answer: HttpResponse, name: str) -> str | None:
    """An ETag or Last-Modified that can be sent back: short, and of characters that a header can carry."""
    value = answer.headers.get(name, "").strip()
    return value if is_sendable(value) else None


def is_sendable(value: str) -> bool:
    plain = value.isascii() and value.isprintable() and value == value.strip()
    return plain and 0 < len(value) <= MAX_VALIDATOR


def stored_validator(value: str | None, mark: str, now: float) -> str | None:
    """A validator as a watch stores it: with the kind of response it belongs to, and when that was read in full."""
    return None if value is None else f"{mark}:{int(now)}:{value}"


def validator_to_send(stored: str | None, mark: str, now: float) -> str | None:
    """The validator to send. None if it belongs to another kind of response or is six hours old.

    A full response is read every six hours because only that shows which items are still listed: the dedupe key of an
    item that is not seen for `dedupe_days` is deleted, and the item would be new again.
    """
    owner, _, rest = (stored or "").partition(":")
    at, _, value = rest.partition(":")
    fresh = owner == mark and at.isdigit() and 0 <= now - int(at[:12]) < LONGEST_KEPT
    return value if fresh and value else None


def without_value(stored: str | None) -> str | None:
    """A stored validator that is never sent: it keeps only its mark and the time of the read."""
    if not stored:
        return None
    mark, read_at, _ = f"{stored}::".split(":", 2)
    return f"{mark}:{read_at}:"


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text[:9]) if text.isascii() and text.isdigit() else None


def _moment(text: str) -> float | None:
    try:
        return clock.parse(text) if text else None
    except (ValueError, OverflowError):
        return None
