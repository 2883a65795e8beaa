"""The simulated OAuth server: exchanges a refresh token for an access token that can read private playlists."""

import secrets
import threading
from dataclasses import dataclass, field

from starlette.responses import JSONResponse, Response

OAUTH_PATH = "/token"
LIFETIME_SECONDS = 3600


@dataclass(frozen=True)
class OAuthClient:
    """The credentials that the token endpoint accepts."""

    client_id: str = "demo-client"
    client_secret: str = field(default="demo-client-secret", repr=False)
    refresh_token: str = field(default="demo-refresh-token", repr=False)


class TokenIssuer:
    """Issues access tokens and knows which are valid."""

    def __init__(self, client: OAuthClient) -> None:
        self.client = client
        self.issued = 0
        self._lock = threading.Lock()
        self._expiry: dict[str, float] = {}

    def issue(self, form: dict[str, str], now: float) -> Response:
        """An access token, or an OAuth error response (RFC 6749 section 5)."""
        if (form.get("client_id"), form.get("client_secret")) != (self.client.client_id, self.client.client_secret):
            return _error("invalid_client", 401)
        if form.get("grant_type") != "refresh_token":
            return _error("unsupported_grant_type", 400)
        if form.get("refresh_token") != self.client.refresh_token:
            return _error("invalid_grant", 400)
        with self._lock:
            token = f"ya29.{secrets.token_urlsafe(24)}"
            self._expiry[token] = now + LIFETIME_SECONDS
            self.issued += 1
        return JSONResponse({"access_token": token, "expires_in": LIFETIME_SECONDS, "token_type": "Bearer"})

    def accepts(self, authorization: str, now: float) -> bool:
        scheme, _, token = authorization.partition(" ")
        return scheme == "Bearer" and self._expiry.get(token, 0.0) > now

    def revoke_all(self) -> None:
        """Invalidate every token issued so far."""
        with self._lock:
            self._expiry.clear()


def _error(reason: str, status: int) -> Response:
    return JSONResponse({"error": reason, "error_description": "The simulated server refuses the request."}, status)
