"""The simulated OAuth server: a refresh token for an access token, which opens private playlists."""

import json
import secrets
import threading
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

OAUTH_PATH = "/token"
LIFETIME = 3600
MOST_BODY = 10_000


@dataclass(frozen=True)
class OAuthClient:
    """Who may ask, and with what."""

    client_id: str = "demo-client"
    client_secret: str = field(default="demo-client-secret", repr=False)
    refresh_token: str = field(default="demo-refresh-token", repr=False)


class TokenIssuer:
    """Hands out access tokens and knows which are good."""

    def __init__(self, client: OAuthClient) -> None:
        self.client = client
        self.handed_out = 0
        self._lock = threading.Lock()
        self._good: dict[str, float] = {}

    def issue(self, form: dict[str, str], now: float) -> Response:
        """RFC 6749 §5: a token, or the reason why not."""
        if (form.get("client_id"), form.get("client_secret")) != (self.client.client_id, self.client.client_secret):
            return _refused("invalid_client", 401)
        if form.get("grant_type") != "refresh_token":
            return _refused("unsupported_grant_type", 400)
        if form.get("refresh_token") != self.client.refresh_token:
            return _refused("invalid_grant", 400)
        with self._lock:
            token = f"ya29.{secrets.token_urlsafe(24)}"
            self._good[token] = now + LIFETIME
            self.handed_out += 1
        return JSONResponse({"access_token": token, "expires_in": LIFETIME, "token_type": "Bearer"})

    def accepts(self, authorization: str, now: float) -> bool:
        scheme, _, token = authorization.partition(" ")
        return scheme == "Bearer" and self._good.get(token, 0.0) > now

    def revoke_all(self) -> None:
        """Every token handed out so far is refused from now on."""
        with self._lock:
            self._good.clear()


async def read_form(request: Request) -> dict[str, str]:
    body = await request.body()
    return dict(parse_qsl(body[:MOST_BODY].decode("latin-1")))


def _refused(reason: str, status: int) -> Response:
    document = {"error": reason, "error_description": "The simulated server says no."}
    return Response(json.dumps(document), status, media_type="application/json")
