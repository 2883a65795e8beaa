"""What is sent back (PRD §8.1): small JSON with one-word reasons, never a piece of the input."""

from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse

from csi.receiver.batch import Verdict, status_of
from csi.receiver.request_error import RefusalError

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_ERRORS: dict[Verdict, str] = {"invalid": "invalid_schema", "duplicate": "duplicate_event"}


@dataclass(frozen=True)
class Answer:
    """A status, a body, and headers beside the usual ones."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, headers={**_HEADERS, **self.headers})


def receipt(verdicts: list[Verdict]) -> Answer:
    """How many were accepted, and which were not, by index."""
    status = status_of(verdicts)
    errors = [
        {"index": index, "error": _ERRORS[verdict]} for index, verdict in enumerate(verdicts) if verdict != "accepted"
    ]
    body = {
        "ok": not errors,
        "accepted": len(verdicts) - len(errors),
        "rejected": len(errors),
        "errors": errors,
    }
    return Answer(status, body | ({"error": "duplicate_batch"} if status == 409 else {}))


def refusal(refused: RefusalError) -> Answer:
    body: dict[str, Any] = {"ok": False, "error": refused.reason}
    if refused.retry_after is not None:
        wait = {"Retry-After": str(refused.retry_after)}
        return Answer(refused.status, body | {"retry_after_seconds": refused.retry_after}, wait)
    return Answer(refused.status, body, {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {})
