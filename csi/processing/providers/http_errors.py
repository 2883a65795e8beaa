"""Convert HTTP errors of any provider to ProviderError."""

import json
from typing import Any

from csi import clock
from csi.errors import NetError
from csi.net import HttpResponse
from csi.processing.providers.base import ProviderError

MAX_RETRY_AFTER = 3600.0
_OUTCOME_UNKNOWN = (409, 504, 524)
"""A gateway timed out, or the same request is still running: it may have been carried out, and paid."""


def unreachable(error: NetError, who: str) -> ProviderError:
    """No complete response. A request that was never sent is certainly not carried out."""
    return ProviderError(
        f"{who}: {error}",
        fault="unknown" if error.sent else "transient",
        code=f"net_{error.kind}",
        error_type="timeout" if error.kind == "timeout" else "api_error",
    )


def refusal(answer: HttpResponse, who: str, now: float) -> ProviderError:
    """The meaning of every status that is not a success."""
    word, code = _message(answer.body), f"http_{answer.status}"
    text = f"{who}: {answer.status} {word}".rstrip()
    wait = _retry_after(answer, now)
    money = any(hint in word.lower() for hint in ("balance", "insufficient_quota", "credit", "billing"))
    if answer.status == 402 or money:
        return ProviderError(text, fault="quota", code="no_credit", error_type="quota_exceeded", status=answer.status)
    if answer.status in (401, 403):
        return ProviderError(text, fault="quota", code="no_access", status=answer.status)
    if answer.status == 429:
        return ProviderError(
            text, fault="transient", code=code, error_type="quota_exceeded", retry_after=wait, status=429
        )
    if answer.status in (408, 409, 425) or answer.status >= 500:
        kind = "timeout" if answer.status in (408, 504, 524) else "api_error"
        return ProviderError(
            text,
            fault="unknown" if answer.status in _OUTCOME_UNKNOWN else "transient",
            code=code,
            error_type=kind,  # type: ignore[arg-type]
            retry_after=wait,
            status=answer.status,
        )
    return ProviderError(text, fault="refused", code=code, status=answer.status)


def read_json(answer: HttpResponse, who: str) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderError(f"{who}: the answer is not a JSON object", fault="unknown", code="bad_answer")
    return found


def _message(body: bytes) -> str:
    """The provider's message, shortened, from `{"error": ".."}` or `{"error": {"message": .., "code": ..}}`."""
    try:
        error = json.loads(body).get("error", "")
    except (ValueError, AttributeError, RecursionError):
        return ""
    if isinstance(error, dict):
        error = " ".join(str(error[name]) for name in ("code", "message") if error.get(name))
    return " ".join(str(error).split())[:300]


def _retry_after(answer: HttpResponse, now: float) -> float | None:
    text = answer.headers.get("retry-after", "")
    if not text:
        return None
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else clock.parse(text) - now
    except ValueError:
        return None
    return min(max(seconds, 1.0), MAX_RETRY_AFTER)
