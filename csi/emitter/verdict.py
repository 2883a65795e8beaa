"""What an answer means: from status, headers, body and size to a verdict. Pure (PRD §8.2; decision 0042, 22–27)."""

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from csi import clock
from csi.config.destination_profiles import Answers
from csi.emitter.failure_cause import NO_OK, NO_SUM
from csi.errors import NetError
from csi.ingester.text import clean
from csi.logs import redact
from csi.net import HttpResponse

RETRY_DELAYS = (20.0, 60.0)
"""Waits before the second and the third attempt; after that, the dead letters."""

JITTER = 0.12
"""PRD's ± jitter. Below 20 %, since waking up takes up to a second more."""

PAUSE_MIN, PAUSE_MAX = 1.0, 3600.0
CLOCK_TOLERANCE = 290.0
"""Receivers refuse timestamps that are more than 300 s off; the answer took a moment to arrive."""


@dataclass(frozen=True)
class MessageSent:
    """The service of a message to people accepted it: the answer of an exchange that shows no HTTP."""

    certificate_expires_at: float | None = None


@dataclass(frozen=True)
class Delivered:
    """Every event of the batch arrived."""


@dataclass(frozen=True)
class PerEvent:
    """A 207: these indexes were refused, each for its own reason; all others arrived."""

    refused: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Throttled:
    """The receiver sent Retry-After. Nothing is sent to it before; no attempt is used up."""

    seconds: float
    reason: str


@dataclass(frozen=True)
class NotDelivered:
    """No event of the batch arrived. The subclass says what follows from it."""

    reason: str


class Transient(NotDelivered):
    """Try again later; uses up an attempt."""


class Refused(NotDelivered):
    """The receiver does not want this content. Several events: search the refused one. One: it is dead."""


class EndpointFault(NotDelivered):
    """The receiver, or our access to it, is misconfigured; no event is the cause."""


class ClockOff(NotDelivered):
    """Refused, and the receiver's clock is far from ours: nothing is dead, but a clock has to be set right."""


Verdict = Delivered | PerEvent | Transient | Throttled | Refused | EndpointFault | ClockOff

_CONTENT = {400, 413, 422}
_TRANSIENT = {408, 425, 429}
_DELIVERED_WITHOUT_BODY = {204, 205}
_ENDPOINT_FAILURES = {"tls", "insecure", "private", "bad_url", "redirect"}


def judge(
    answer: HttpResponse | NetError | MessageSent, size: int, now: float, answers: Answers = "contract"
) -> Verdict:
    """The verdict on any response or failure. Every status has a verdict, and no content of a response raises.

    `answers` is `status` for receivers that do not know the contract: every 2xx is delivered, whatever the body says.
    """
    if isinstance(answer, MessageSent):
        return Delivered()
    if isinstance(answer, NetError):
        reason = f"{answer.kind}: {answer.cause}" if answer.cause else answer.kind
        if answer.kind in ("template", "body_size"):  # nothing was sent: this event does not fit, others may
            return Refused(_own_words(reason, 400))
        return EndpointFault(reason) if answer.kind in _ENDPOINT_FAILURES else Transient(reason)
    status = answer.status
    if answers == "status" and 200 <= status < 300:
        return Delivered()
    if status in _DELIVERED_WITHOUT_BODY or status == 409:
        return Delivered()
    if status == 207:
        return _judge_parts(answer.json_object(), size)
    if 200 <= status < 300:
        body = answer.json_object()
        if body is None or body.get("ok") is not True:
            return Transient(NO_OK)
        if body.get("rejected") or body.get("errors"):
            return _judge_parts(body, size)
        return Delivered() if body.get("accepted", size) == size else Transient(NO_SUM)
    if status in _CONTENT:
        return Refused(_reason(answer))
    if status in _TRANSIENT or status >= 500 or status < 200:
        asked = retry_after(answer, now)
        return Transient(_reason(answer)) if asked is None else Throttled(asked, _reason(answer))
    if status == 401 and abs(off := clock_difference(answer, now) or 0) > CLOCK_TOLERANCE:
        return ClockOff(f"{_reason(answer)}; the receiver's clock is {off:+.0f} s from ours")
    return EndpointFault(_reason(answer))  # every redirect, and every 4xx that is not about the content


def next_attempt(attempts_made: int, now: float, rng: random.Random) -> float | None:
    """When to try again after this many attempts; None: no more."""
    if attempts_made > len(RETRY_DELAYS):
        return None
    return now + RETRY_DELAYS[attempts_made - 1] * rng.uniform(1 - JITTER, 1 + JITTER)


def retry_after(answer: HttpResponse, now: float) -> float | None:
    """Seconds the receiver asks for: header first (seconds or a date), then body. Clamped; None: nothing said."""
    header = answer.headers.get("retry-after", "")
    asked = _number(header)
    with suppress(ValueError, OverflowError):
        asked = clock.parse(header) - now if asked is None else asked
    if asked is None:
        asked = _number((answer.json_object() or {}).get("retry_after_seconds"))
    return None if asked is None else min(max(asked, PAUSE_MIN), PAUSE_MAX)


def clock_difference(answer: HttpResponse, now: float) -> float | None:
    """How many seconds the receiver's clock is ahead of ours, by its Date header; None: it does not say."""
    try:
        return clock.parse(answer.headers["date"]) - now
    except (KeyError, ValueError, OverflowError):
        return None


def _judge_parts(body: dict[str, Any] | None, size: int) -> Verdict:
    errors = (body or {}).get("errors")
    if body is None or not isinstance(errors, list):
        return Transient(NO_SUM)
    reasons = {}
    for error in errors:
        index = error.get("index") if isinstance(error, dict) else None
        if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < size:
            reasons[index] = _own_words(str(error.get("error", "")), 200)
    accepted, rejected = body.get("accepted", size - len(errors)), body.get("rejected", len(errors))
    if len(reasons) != len(errors) or rejected != len(errors) or accepted != size - len(errors):
        return Transient(NO_SUM)
    return PerEvent({index: reason for index, reason in reasons.items() if reason != "duplicate_event"})


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < 1e12 else None  # also refuses NaN and the infinities


def _reason(answer: HttpResponse) -> str:
    """`http 503: ua_overloaded`: the status, and the receiver's own word."""
    word = (answer.json_object() or {}).get("error")
    word = _own_words(word, 100) if isinstance(word, str) else ""
    return f"http {answer.status}: {word}" if word else f"http {answer.status}"


def _own_words(text: str, limit: int) -> str:
    """Outside text like any other: half a surrogate pair or a NUL could not be stored. Secrets go before the cut."""
    return redact(clean(text))[:limit]
