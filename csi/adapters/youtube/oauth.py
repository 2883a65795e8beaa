"""OAuth access tokens from a refresh token (RFC 6749 §6): kept in memory, renewed before they expire, never shown."""

import re
import threading
from dataclasses import dataclass, field
from urllib.parse import urlencode

from pydantic import Field

from csi.adapters import response_headers
from csi.adapters.base import Tools
from csi.config.setting_types import Model, SourceUrl, VariableName
from csi.errors import NetError, SourceError
from csi.net import HttpLimits

LIMITS = HttpLimits(total=10.0, max_body=64 * 1024)
EARLY = 60.0
LONGEST = 86_400.0
_TOKEN = re.compile(r"[!-~]{1,4096}")  # what can be sent in a header

_REFUSALS = {
    "invalid_grant": "the OAuth refresh token is no longer valid; sign in again and set {refresh_token_env}",
    "invalid_client": "the OAuth client is not accepted; check {client_id_env} and {client_secret_env}",
    "unauthorized_client": "the OAuth client may not use this refresh token; check {client_id_env}",
    "invalid_scope": "the OAuth refresh token does not cover youtube.readonly; sign in again with that scope",
}


class OAuthSettings(Model):
    """OAuth for private playlists: the names of the three variables that hold client and refresh token."""

    client_id_env: VariableName = Field("YOUTUBE_OAUTH_CLIENT_ID", description="Variable that holds the client's id")
    client_secret_env: VariableName = Field(
        "YOUTUBE_OAUTH_CLIENT_SECRET", description="Variable that holds the client's secret"
    )
    refresh_token_env: VariableName = Field(
        "YOUTUBE_OAUTH_REFRESH_TOKEN", description="Variable that holds the refresh token"
    )
    token_url: SourceUrl = Field("https://oauth2.googleapis.com/token", description="Where access tokens come from")


@dataclass(frozen=True)
class AccessToken:
    """A bearer token and the time from which it must be renewed."""

    text: str = field(repr=False)
    until: float


class AccessTokens:
    """One access token, shared by all threads."""

    def __init__(self, settings: OAuthSettings, tools: Tools) -> None:
        self._settings = settings
        self._tools = tools
        self._lock = threading.Lock()
        self._held: AccessToken | None = None

    @property
    def configured(self) -> bool:
        """Whether any of the three variables is set. Then all must be: with one missing, calls fail instead of falling
        back to the API key without notice."""
        return any(self._tools.secret(name) for name in self._variables().values())

    @property
    def missing(self) -> list[str]:
        """The names of those of the three variables that are not set."""
        return [name for name in self._variables().values() if not self._tools.secret(name)]

    def token(self, *, refused: str | None = None) -> str:
        """A token that has not expired and is not `refused`. Raises SourceError("auth") when there is none."""
        with self._lock:
            held = self._held
            if held is None or held.until <= self._tools.now() or held.text == refused:
                held = self._held = self._renew()
            return held.text

    def _variables(self) -> dict[str, str]:
        settings = self._settings
        return {
            "client_id": settings.client_id_env,
            "client_secret": settings.client_secret_env,
            "refresh_token": settings.refresh_token_env,
        }

    def _renew(self) -> AccessToken:
        secrets = {field: self._tools.secret(name) for field, name in self._variables().items()}
        if missing := self.missing:
            raise SourceError(f"OAuth needs three variables; not set: {', '.join(missing)}", kind="auth")
        body = urlencode({"grant_type": "refresh_token", **secrets}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        try:
            answer = self._tools.net.post(self._settings.token_url, body=body, headers=headers, limits=LIMITS)
        except NetError as error:
            raise response_headers.unreachable(error, "no OAuth access token") from error
        document = answer.json_object() or {}
        token, seconds = document.get("access_token"), document.get("expires_in", 0)
        if answer.status != 200 or not isinstance(token, str) or not _TOKEN.fullmatch(token):
            # Without the server's own message, which may repeat the secrets that were sent.
            reason = document.get("error")
            if isinstance(reason, str) and reason in _REFUSALS:
                raise SourceError(_REFUSALS[reason].format(**self._settings.model_dump()), kind="auth")
            if answer.status in (429, 503):
                wait = response_headers.retry_after(answer, self._tools.now())
                raise SourceError("the OAuth server rate-limited us", kind="throttled", retry_after=wait)
            kind = "transient" if answer.status >= 500 or answer.status == 200 else "auth"
            raise SourceError(f"the OAuth server gave no access token (it answered {answer.status})", kind=kind)
        known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= LONGEST
        lifetime = seconds if known else EARLY  # without a usable lifetime the next call renews the token
        return AccessToken(token, self._tools.now() + lifetime - EARLY)
