"""What an error response of the YouTube Data API means, by its `reason` and not by its status alone.

Status 403 stands for a used-up quota, a rejected key, a missing permission and a private list alike. The API's own
messages contain HTML and are never shown.
"""

from typing import Any

from csi.adapters import response_headers
from csi.errors import SourceError
from csi.ingester.text import clean
from csi.net import HttpResponse

_QUOTA = ("quota", "the API's daily quota is used up; polling resumes after midnight Pacific time")
_SLOWER = ("throttled", "the API rate-limited us")
_BAD_KEY = ("auth", "the API key is not valid; check {key_env}")
_API_OFF = ("auth", "the YouTube Data API is not enabled for this key's project; enable it in the Google Cloud console")
_BLOCKED = ("auth", "the API key's restrictions do not allow the YouTube Data API; change them in the console")
_ADDRESS = ("auth", "the API key's restrictions do not allow this server's address; change them in the console")
_TOKEN = ("auth", "the API rejected the OAuth access token; sign in again")
_SCOPE = ("auth", "the OAuth refresh token does not cover youtube.readonly; sign in again with that scope")
_SERVER_ERROR = ("transient", "the API reported an internal error")
_BAD_REQUEST = ("bug", "the API rejected the request as invalid")
_PRIVATE = ("denied", "the playlist is private; its owner's OAuth refresh token is needed to read it")
_UNREADABLE = ("denied", "YouTube does not offer this list through the API")

LIST_CHANGED = "the playlist changed while it was read"
"""The page token is no longer valid: a read page by page must start again at the first page."""

REASONS: dict[str, tuple[str, str]] = {
    "quotaExceeded": _QUOTA,
    "dailyLimitExceeded": _QUOTA,
    "dailyLimitExceededUnreg": ("auth", "the API needs a key; set {key_env}"),
    "rateLimitExceeded": _SLOWER,
    "userRateLimitExceeded": _SLOWER,
    "servingLimitExceeded": _SLOWER,
    "concurrentLimitExceeded": _SLOWER,
    "RATE_LIMIT_EXCEEDED": _SLOWER,
    "keyInvalid": _BAD_KEY,
    "API_KEY_INVALID": _BAD_KEY,
    "keyExpired": _BAD_KEY,
    "accessNotConfigured": _API_OFF,
    "SERVICE_DISABLED": _API_OFF,
    "API_KEY_SERVICE_BLOCKED": _BLOCKED,
    "ipRefererBlocked": _ADDRESS,
    "API_KEY_IP_ADDRESS_BLOCKED": _ADDRESS,
    "API_KEY_HTTP_REFERRER_BLOCKED": _ADDRESS,
    "CONSUMER_SUSPENDED": ("auth", "Google has suspended this key's project"),
    "CONSUMER_INVALID": ("auth", "this key's project no longer exists"),
    "accountSuspended": ("auth", "the Google account of the OAuth refresh token is suspended"),
    "accountClosed": ("auth", "the Google account of the OAuth refresh token is closed"),
    "authError": _TOKEN,
    "unauthorized": _TOKEN,
    "expired": _TOKEN,
    "CREDENTIALS_MISSING": ("auth", "the API needs a key; set {key_env}"),
    "ACCESS_TOKEN_EXPIRED": _TOKEN,
    "ACCESS_TOKEN_TYPE_UNSUPPORTED": _TOKEN,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": _SCOPE,
    "insufficientPermissions": _SCOPE,
    "youtubeSignupRequired": ("auth", "the Google account of the OAuth refresh token has no YouTube channel"),
    "playlistItemsNotAccessible": _PRIVATE,
    "playlistForbidden": _PRIVATE,
    "channelForbidden": ("denied", "the channel cannot be read with the configured key"),
    "watchHistoryNotAccessible": _UNREADABLE,
    "watchLaterNotAccessible": _UNREADABLE,
    "playlistOperationUnsupported": _UNREADABLE,
    "playlistNotFound": ("missing", "there is no such playlist, or it is private"),
    "channelNotFound": ("missing", "there is no such channel"),
    "videoNotFound": ("missing", "there is no such video"),
    "invalidPageToken": ("transient", LIST_CHANGED),
    "playlistIdRequired": _BAD_REQUEST,
    "missingRequiredParameter": _BAD_REQUEST,
    "required": _BAD_REQUEST,
    "invalidParameter": _BAD_REQUEST,
    "unknownPart": _BAD_REQUEST,
    "backendError": _SERVER_ERROR,
    "internalError": _SERVER_ERROR,
    "processingFailure": _SERVER_ERROR,
    "SERVICE_UNAVAILABLE": _SERVER_ERROR,
    # Vague reasons: if the body has another reason beside one of these, the other one decides.
    "forbidden": ("auth", "the API refuses access; the key is missing or may not read this"),
    "badRequest": _BAD_REQUEST,
}
_VAGUE = ("forbidden", "badRequest")
QUOTA_STATUSES = (403, 429)
_BY_STATUS = {401: _TOKEN, 429: _SLOWER}


def api_json(answer: HttpResponse, *, key_env: str = "YOUTUBE_API_KEY", now: float = 0.0) -> dict[str, Any]:
    """The body of a successful response; otherwise raises SourceError with the reason in words."""
    body = answer.json_object()
    if answer.status == 200 and body is not None and "error" not in body:
        return body
    if body is not None and isinstance(body.get("error"), dict):
        error = body["error"]
        found = [entry.get("reason") for key in ("details", "errors") for entry in _dicts(error.get(key))]
        named = [reason for reason in found if isinstance(reason, str) and reason]
        known = sorted((reason for reason in named if reason in REASONS), key=lambda reason: reason in _VAGUE)
        # A rate limit per day is the quota: newer responses name it `…PerDay…` in their details.
        metadata = [entry.get("metadata") for entry in _dicts(error.get("details"))]
        limits = [str(data.get("quota_limit")) for data in metadata if isinstance(data, dict)]
        is_daily = any("perday" in limit.lower().replace("_", "") for limit in limits)
        if known and REASONS[known[0]] is _SLOWER and is_daily:
            kind, words = _QUOTA
        elif known:
            kind, words = REASONS[known[0]]
        elif answer.status in _BY_STATUS:
            kind, words = _BY_STATUS[answer.status]
        else:
            shown = "".join(
                char for char in clean(named[0] if named else "no reason", 60) if char.isalnum() or char in " _-"
            )
            kind, words = "transient", f"the API answered {answer.status} ({shown})"
        if kind == "quota" and answer.status not in QUOTA_STATUSES:
            # It would stop every read until midnight: a proxy's or an odd answer must not do that.
            kind, words = "transient", f"the API answered {answer.status} with the error of a used-up quota"
        waiting = kind in ("throttled", "transient")
    else:  # most likely a page of a proxy; its 429 and 503 mean the same as the API's
        kind = {200: "malformed", 429: "throttled", 503: "throttled"}.get(answer.status, "transient")
        words, waiting = f"the API answered {answer.status} with a body that is not its JSON", kind == "throttled"
    wait = response_headers.retry_after(answer, now) if waiting else None
    raise SourceError(words.format(key_env=key_env), kind=kind, retry_after=wait)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
