"""Call a provider over HTTP. Every error becomes a ProviderError."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from csi import clock
from csi.errors import NetError
from csi.net import HttpResponse
from csi.processing.collection_models import ErrorType
from csi.processing.providers.base import ApiCall, Fault, ProviderError

MAX_RETRY_AFTER = 3600.0
_OUTCOME_UNKNOWN = (409, 504, 524)
"""A gateway timed out, or the same request is still running: it may have been carried out, and paid."""

_CAUSES = {"authentication": "authentication failed", "no_credit": "the account has no credit"}


_recorded: ContextVar[list[ApiCall] | None] = ContextVar("recorded_calls", default=None)


@contextmanager
def recorded_calls() -> Iterator[list[ApiCall]]:
    """The requests to providers that are made inside, for the audit log. A ProviderError gets the last one."""
    calls: list[ApiCall] = []
    token = _recorded.set(calls)
    try:
        yield calls
    except ProviderError as error:
        error.call = error.call or (calls[-1] if calls else None)
        raise
    finally:
        _recorded.reset(token)


def record_call(method: str, url: str, status: int | None, started: float) -> None:
    calls = _recorded.get()
    if calls is not None:
        milliseconds = round(1000 * (time.monotonic() - started), 1)
        calls.append(ApiCall(method, url.partition("?")[0][:500], status, milliseconds))


def call_json(
    send: Callable[[], HttpResponse], who: str, now: Callable[[], float], *, method: str, url: str
) -> dict[str, Any]:
    """Send the request and return the JSON object of its answer. `method` and `url` are for the audit log."""
    started, status = time.monotonic(), None
    try:
        answer = send()
        status = answer.status
    except NetError as error:
        # A request that was never sent is certainly not carried out.
        fault: Fault = "unknown" if error.sent else "transient"
        kind: ErrorType = "timeout" if error.kind == "timeout" else "api_error"
        words = str(error).partition(": ")[2]  # without the address
        raise ProviderError(
            f"{who}: {error}", fault=fault, code=f"net_{error.kind}", error_type=kind, cause=words or None
        ) from error
    finally:
        record_call(method, url, status, started)
    if answer.status != 200:
        raise refusal(answer, who, now())
    found = answer.json_object()
    if found is None:
        raise ProviderError(f"{who}: the answer is not a JSON object", "unknown", "bad_answer")
    return found


def refusal(answer: HttpResponse, who: str, now: float) -> ProviderError:
    """The meaning of every status that is not a success."""
    # The provider's message, shortened, from `{"error": ".."}` or `{"error": {"message": .., "code": ..}}`.
    error = (answer.json_object() or {}).get("error", "")
    if isinstance(error, dict):
        error = " ".join(str(error[name]) for name in ("code", "message") if error.get(name))
    status, word = answer.status, " ".join(str(error).split())[:300]
    fault: Fault = "refused"
    kind: ErrorType = "api_error"
    code, wait = f"http_{status}", None
    if status == 401:  # its words may link to a page about billing
        fault, code = "account", "authentication"
    elif status == 402 or any(hint in word.lower() for hint in ("balance", "insufficient_quota", "credit", "billing")):
        fault, code, kind = "account", "no_credit", "quota_exceeded"
    elif status == 403:
        fault, code = "account", "authentication"
    elif status == 429:
        fault, kind, wait = "transient", "quota_exceeded", _retry_after(answer, now)
    elif status in (408, 409, 425) or status >= 500:
        fault, wait = "unknown" if status in _OUTCOME_UNKNOWN else "transient", _retry_after(answer, now)
        kind = "timeout" if status in (408, 504, 524) else "api_error"
    text, cause = f"{who}: {status} {word}".rstrip(), _CAUSES.get(code, "the call failed")
    return ProviderError(
        text, fault=fault, code=code, error_type=kind, retry_after=wait, status=status, cause=f"{cause} (HTTP {status})"
    )


def _retry_after(answer: HttpResponse, now: float) -> float | None:
    text = answer.headers.get("retry-after", "")
    if not text:
        return None
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else clock.parse(text) - now
    except ValueError:
        return None
    return min(max(seconds, 1.0), MAX_RETRY_AFTER)
