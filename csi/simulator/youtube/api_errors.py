"""The Data API's refusals: one table of reasons, one envelope (FACTS §1.1)."""

import json
from dataclasses import dataclass
from typing import Any

_HELP = "https://console.developers.google.com/apis/api/youtube.googleapis.com/overview"


@dataclass(frozen=True)
class ApiErrorReason:
    """How one reason looks on the wire. `status` is gRPC's word; old bodies have none."""

    code: int
    domain: str
    message: str
    status: str | None = None
    location: str | None = None
    detail: str | None = None
    wire: str | None = None  # where the body's `reason` is another word than ours


REASONS = {
    "quotaExceeded": ApiErrorReason(
        403,
        "youtube.quota",
        'Your <a href="/youtube/v3/getting-started#quota">quota</a> is used up; this request was not served.',
    ),
    "dailyLimitExceeded": ApiErrorReason(403, "usageLimits", "The daily limit of this project is used up."),
    "rateLimitExceeded": ApiErrorReason(
        429, "usageLimits", "Too many requests at once; wait a little.", "RESOURCE_EXHAUSTED"
    ),
    "userRateLimitExceeded": ApiErrorReason(403, "usageLimits", "Too many requests at once from this user."),
    "keyInvalid": ApiErrorReason(400, "usageLimits", "Bad Request"),
    "API_KEY_INVALID": ApiErrorReason(
        400,
        "global",
        "API key not valid. Please pass a valid API key.",
        "INVALID_ARGUMENT",
        detail="API_KEY_INVALID",
        wire="badRequest",
    ),
    "forbidden": ApiErrorReason(
        403,
        "global",
        "Callers without an identity are not served here. Please use an API key.",
        "PERMISSION_DENIED",
    ),
    "accessNotConfigured": ApiErrorReason(
        403,
        "usageLimits",
        f"The YouTube Data API is switched off for this project. Switch it on at {_HELP}",
        "PERMISSION_DENIED",
        detail="SERVICE_DISABLED",
    ),
    "ipRefererBlocked": ApiErrorReason(
        403,
        "usageLimits",
        "The key's restrictions do not allow this address.",
        "PERMISSION_DENIED",
        detail="API_KEY_IP_ADDRESS_BLOCKED",
    ),
    "playlistItemsNotAccessible": ApiErrorReason(
        403, "youtube.playlistItem", "The items of this playlist are not yours to read."
    ),
    "playlistNotFound": ApiErrorReason(
        404,
        "youtube.playlistItem",
        "There is no playlist with the id in <code>playlistId</code>.",
        location="playlistId",
    ),
    "watchHistoryNotAccessible": ApiErrorReason(
        403, "youtube.playlistItem", "The watch history cannot be read through the API."
    ),
    "watchLaterNotAccessible": ApiErrorReason(
        403, "youtube.playlistItem", "The watch later list cannot be read through the API."
    ),
    "invalidPageToken": ApiErrorReason(
        400, "youtube.parameter", "<code>pageToken</code> is not a page token.", location="pageToken"
    ),
    "unknownPart": ApiErrorReason(400, "youtube.part", "An unknown part was asked for.", location="part"),
    "required": ApiErrorReason(400, "global", "Required parameter: part", "INVALID_ARGUMENT", location="part"),
    "missingRequiredParameter": ApiErrorReason(400, "youtube.parameter", "No filter selected.", location="parameters."),
    "badRequest": ApiErrorReason(400, "global", "The request cannot be understood.", "INVALID_ARGUMENT"),
    "authError": ApiErrorReason(401, "global", "Invalid credentials.", "UNAUTHENTICATED"),
    "notFound": ApiErrorReason(404, "global", "Requested entity was not found.", "NOT_FOUND"),
    "backendError": ApiErrorReason(500, "global", "Internal error encountered.", "INTERNAL"),
    "unavailable": ApiErrorReason(
        503, "global", "The service is currently unavailable.", "UNAVAILABLE", wire="backendError"
    ),
}

_BY_STATUS = {
    400: "badRequest",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    429: "rateLimitExceeded",
    503: "unavailable",
}


class ApiRefusalError(Exception):
    """The request ends here, with this reason; `says` replaces the table's sentence."""

    def __init__(self, reason: str, says: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.says = says


def error_body(reason: str, says: str | None = None) -> tuple[int, bytes]:
    """Status and body of a refusal. HTML in messages is escaped, as Google does."""
    row = REASONS[reason]
    return row.code, _write(_envelope(row, reason, says or row.message, row.code))


def status_body(status: int) -> bytes:
    """The body of a bare status, as a fault of the service would have it."""
    reason = _BY_STATUS.get(status, "backendError" if status >= 500 else "badRequest")
    return _write(_envelope(REASONS[reason], reason, REASONS[reason].message, status))


def _envelope(row: ApiErrorReason, reason: str, message: str, code: int) -> dict[str, Any]:
    entry = {"message": message, "domain": row.domain, "reason": row.wire or reason}
    if row.location:
        entry |= {"location": row.location, "locationType": "parameter"}
    error: dict[str, Any] = {"code": code, "message": message, "errors": [entry]}
    if row.status:
        error["status"] = row.status
    if row.detail:
        error["details"] = [_error_info(row.detail)]
    return {"error": error}


def _error_info(reason: str) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": "youtube.googleapis.com"},
    }


def _write(document: dict[str, Any]) -> bytes:
    written = json.dumps(document, indent=2)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").encode() + b"\n"
