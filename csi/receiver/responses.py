"""The receiver's HTTP responses (PRD §8.1): small JSON with one-word reasons, never a part of the input."""

from typing import Any

from starlette.responses import JSONResponse

from csi.receiver.batch import EventVerdict, status_of
from csi.receiver.request_error import RequestError

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_ERRORS: dict[EventVerdict, str] = {"invalid": "invalid_schema", "duplicate": "duplicate_event"}


def json_response(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(body, status, headers={**_HEADERS, **(headers or {})})


def batch_response(verdicts: list[EventVerdict]) -> JSONResponse:
    """How many events were accepted, and which were not, by index."""
    errors = [
        {"index": index, "error": _ERRORS[verdict]} for index, verdict in enumerate(verdicts) if verdict != "accepted"
    ]
    body = {"ok": not errors, "accepted": len(verdicts) - len(errors), "rejected": len(errors), "errors": errors}
    status = status_of(verdicts)
    return json_response(status, body | ({"error": "duplicate_batch"} if status == 409 else {}))


def error_response(error: RequestError) -> JSONResponse:
    body: dict[str, Any] = {"ok": False, "error": error.reason}
    if error.retry_after is not None:
        body["retry_after_seconds"] = error.retry_after
        return json_response(error.status, body, {"Retry-After": str(error.retry_after)})
    return json_response(error.status, body, {"WWW-Authenticate": "Bearer"} if error.status == 401 else {})
