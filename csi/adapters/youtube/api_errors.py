"""What the Data API's refusals mean: decided by their reason, never by the status alone (FACTS 1.1).

403 alone is quota, key, permission and private list alike. The API's own messages hold HTML and are never shown.
"""

from typing import Any

from csi.adapters import response_headers
from csi.errors import SourceError
from csi.ingester.text import clean
from csi.net import HttpResponse

_QUOTA = ("quota", "the API's daily quota is used up; polling goes on after midnight Pacific time")
_SLOWER = ("throttled", "the API asks for fewer requests")
_BAD_KEY = ("auth", "the API key is not valid; check {key_env}")
_API_OFF = ("auth", "the YouTube Data API is not enabled for this key's project; enable it in the Google Cloud console")
_BLOCKED = ("auth", "the API key's restrictions do not allow the YouTube Data API; change them in the console")
_ADDRESS = ("auth", "the API key's restrictions do not allow this server's address; change them in the console")
_TOKEN = ("auth", "the OAuth access was refused; sign in again")
_SCOPE = ("auth", "the OAuth refresh token does not cover youtube.readonly; sign in again with that scope")
_OWN_FAULT = ("transient", "the API has a fault of its own")
_NO_REQUEST = ("bug", "the API does not accept the request")
_PRIVATE = ("denied", "the playlist is private; its owner's OAuth refresh token is needed to read it")
_NOBODY = ("denied", "YouTube lets nobody read this list through the API")

LIST_CHANGED = "the playlist changed while it was read"
"""A page token that is not good any more: whoever walks page by page begins anew."""

REASONS: dict[str, tuple[str, str]] = {
    "quotaExceeded": _QUOTA,
    "dailyLimitExceeded": _QUOTA,
    "dailyLimitExceededUnreg": ("auth", "the API wants a key; set {key_env}"),
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
    "CONSUMER_INVALID": ("auth", "this key's project is no longer there"),
    "accountSuspended": ("auth", "the Google account of the OAuth refresh token is suspended"),
    "accountClosed": ("auth", "the Google account of the OAuth refresh token is closed"),
    "authError": _TOKEN,
    "unauthorized": _TOKEN,
    "expired": _TOKEN,
    "CREDENTIALS_MISSING": ("auth", "the API wants a key; set {key_env}"),
    "ACCESS_TOKEN_EXPIRED": _TOKEN,
    "ACCESS_TOKEN_TYPE_UNSUPPORTED": _TOKEN,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": _SCOPE,
    "insufficientPermissions": _SCOPE,
    "youtubeSignupRequired": ("auth", "the Google account of the OAuth refresh token has no YouTube channel"),
    "playlistItemsNotAccessible": _PRIVATE,
    "playlistForbidden": _PRIVATE,
    "channelForbidden": ("denied", "the channel may not be read with what we have"),
    "watchHistoryNotAccessible": _NOBODY,
    "watchLaterNotAccessible": _NOBODY,
    "playlistOperationUnsupported": _NOBODY,
    "playlistNotFound": ("missing", "there is no such playlist, or it is private"),
    "channelNotFound": ("missing", "there is no such channel"),
    "videoNotFound": ("missing", "there is no such video"),
    "invalidPageToken": ("transient", LIST_CHANGED),
    "playlistIdRequired": _NO_REQUEST,
    "missingRequiredParameter": _NO_REQUEST,
    "required": _NO_REQUEST,
    "invalidParameter": _NO_REQUEST,
    "unknownPart": _NO_REQUEST,
    "backendError": _OWN_FAULT,
    "internalError": _OWN_FAULT,
    "processingFailure": _OWN_FAULT,
    "SERVICE_UNAVAILABLE": _OWN_FAULT,
    # These say little, so they come last: a body with another reason beside them means that one.
    "forbidden": ("auth", "the API refuses access; the key is missing or may not read this"),
    "badRequest": _NO_REQUEST,
}
_VAGUE = ("forbidden", "badRequest")
_BY_STATUS = {401: _TOKEN, 429: _SLOWER}
_WAITING = frozenset({"throttled", "transient"})


def api_json(answer: HttpResponse, *, key_env: str = "YOUTUBE_API_KEY", now: float = 0.0) -> dict[str, Any]:
    """The body of a good API answer; SourceError with the reason in words otherwise."""
    body = response_headers.json_object(answer)
    if answer.status == 200 and body is not None and "error" not in body:
        return body
    if body is None or not isinstance(body.get("error"), dict):
        raise _not_its_json(answer, now)
    kind, words = _meaning(body["error"], answer.status)
    wait = response_headers.retry_after(answer, now) if kind in _WAITING else None
    raise SourceError(words.format(key_env=key_env), kind=kind, retry_after=wait)


def _not_its_json(answer: HttpResponse, now: float) -> SourceError:
    """A proxy's page, most likely; 429 and 503 mean the same from anybody."""
    waiting = answer.status in (429, 503)
    kind = "throttled" if waiting else "malformed" if answer.status == 200 else "transient"
    wait = response_headers.retry_after(answer, now) if waiting else None
    text = f"the API answered {answer.status} with something that is not its JSON"
    return SourceError(text, kind=kind, retry_after=wait)


def _meaning(error: dict[str, Any], status: int) -> tuple[str, str]:
    named = _reasons(error)
    known = sorted((reason for reason in named if reason in REASONS), key=lambda reason: reason in _VAGUE)
    if known and REASONS[known[0]] is _SLOWER and _is_daily(error):
        return _QUOTA
    if known:
        return REASONS[known[0]]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    shown = "".join(char for char in clean(named[0] if named else "no reason", 60) if char.isalnum() or char in " _-")
    return "transient", f"the API answered {status} ({shown})"


def _reasons(error: dict[str, Any]) -> list[str]:
    found = [entry.get("reason") for key in ("details", "errors") for entry in _dicts(error.get(key))]
    return [reason for reason in found if isinstance(reason, str) and reason]


def _is_daily(error: dict[str, Any]) -> bool:
    """A rate limit of a whole day is the quota: newer answers name it `…PerDay…` in their details."""
    limits = [entry["metadata"].get("quota_limit") for entry in _dicts(error.get("details")) if _has_metadata(entry)]
    return any("perday" in str(limit).lower().replace("_", "") for limit in limits)


def _has_metadata(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("metadata"), dict)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
