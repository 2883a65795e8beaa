"""Error responses of the simulated Data API: the known reasons, and the JSON around them."""

import json
from dataclasses import dataclass
from typing import Any

_HELP = "https://console.developers.google.com/apis/api/youtube.googleapis.com/overview"


@dataclass(frozen=True)
class ErrorReason:
    """One error reason as the API sends it. `status` is the gRPC status name; older reasons have none."""

    code: int
    domain: str
    message: str
    status: str | None = None
    location: str | None = None
    detail: str | None = None
    wire: str | None = None  # the value of the body's `reason`, where it differs from the key in REASONS


_ITEM = "youtube.playlistItem"
_DENIED = "PERMISSION_DENIED"
REASONS = {
    "quotaExceeded": ErrorReason(403, "youtube.quota",
        'Your <a href="/youtube/v3/getting-started#quota">quota</a> is used up; this request was not served.'),
    "dailyLimitExceeded": ErrorReason(403, "usageLimits", "The daily limit of this project is used up."),
    "rateLimitExceeded": ErrorReason(429, "usageLimits", "Too many requests at once; wait a little.",
        "RESOURCE_EXHAUSTED"),
    "userRateLimitExceeded": ErrorReason(403, "usageLimits", "Too many requests at once from this user."),
    "keyInvalid": ErrorReason(400, "usageLimits", "Bad Request"),
    "API_KEY_INVALID": ErrorReason(400, "global", "API key not valid. Please pass a valid API key.",
        "INVALID_ARGUMENT", detail="API_KEY_INVALID", wire="badRequest"),
    "forbidden": ErrorReason(403, "global",
        "Callers without an identity are not served here. Please use an API key.", _DENIED),
    "accessNotConfigured": ErrorReason(403, "usageLimits",
        f"The YouTube Data API is switched off for this project. Switch it on at {_HELP}", _DENIED,
        detail="SERVICE_DISABLED"),
    "ipRefererBlocked": ErrorReason(403, "usageLimits", "The key's restrictions do not allow this address.", _DENIED,
        detail="API_KEY_IP_ADDRESS_BLOCKED"),
    "playlistItemsNotAccessible": ErrorReason(403, _ITEM, "The items of this playlist are not yours to read."),
    "playlistNotFound": ErrorReason(404, _ITEM, "There is no playlist with the id in <code>playlistId</code>.",
        location="playlistId"),
    "watchHistoryNotAccessible": ErrorReason(403, _ITEM, "The watch history cannot be read through the API."),
    "watchLaterNotAccessible": ErrorReason(403, _ITEM, "The watch later list cannot be read through the API."),
    "invalidPageToken": ErrorReason(400, "youtube.parameter", "<code>pageToken</code> is not a page token.",
        location="pageToken"),
    "unknownPart": ErrorReason(400, "youtube.part", "An unknown part was asked for.", location="part"),
    "required": ErrorReason(400, "global", "Required parameter: part", "INVALID_ARGUMENT", location="part"),
    "missingRequiredParameter": ErrorReason(400, "youtube.parameter", "No filter selected.", location="parameters."),
    "badRequest": ErrorReason(400, "global", "The request cannot be understood.", "INVALID_ARGUMENT"),
    "authError": ErrorReason(401, "global", "Invalid credentials.", "UNAUTHENTICATED"),
    "notFound": ErrorReason(404, "global", "Requested entity was not found.", "NOT_FOUND"),
    "backendError": ErrorReason(500, "global", "Internal error encountered.", "INTERNAL"),
    "unavailable": ErrorReason(503, "global", "The service is currently unavailable.", "UNAVAILABLE",
        wire="backendError"),
}  # fmt: skip

_BY_STATUS = {
    400: "badRequest", 401: "authError", 403: "forbidden", 404: "notFound", 429: "rateLimitExceeded",
    503: "unavailable",
}  # fmt: skip


class ApiRefusalError(Exception):
    """Ends the request with this reason; `message` replaces the message in REASONS."""

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message


def error_body(reason: str, message: str | None = None) -> tuple[int, bytes]:
    """Status code and body of an error response."""
    row = REASONS[reason]
    return row.code, _envelope(row, reason, message or row.message, row.code)


def status_body(status: int) -> bytes:
    """The body of an error response with any HTTP status, with the reason that fits it best."""
    reason = _BY_STATUS.get(status, "backendError" if status >= 500 else "badRequest")
    return _envelope(REASONS[reason], reason, REASONS[reason].message, status)


def _envelope(row: ErrorReason, reason: str, message: str, code: int) -> bytes:
    entry = {"message": message, "domain": row.domain, "reason": row.wire or reason}
    if row.location:
        entry |= {"location": row.location, "locationType": "parameter"}
    error: dict[str, Any] = {"code": code, "message": message, "errors": [entry]}
    if row.status:
        error["status"] = row.status
    if row.detail:
        info = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": row.detail,
            "domain": "googleapis.com",
            "metadata": {"service": "youtube.googleapis.com"},
        }
        error["details"] = [info]
    written = json.dumps({"error": error}, indent=2)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").encode() + b"\n"  # Google escapes HTML
