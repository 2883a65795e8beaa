"""One request: the error that rejects it, checks of its headers before its body is read, and its body."""

import hashlib
import hmac
from dataclasses import dataclass

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from csi.errors import CsiError

_DISCARD_SECONDS = 5


class RequestError(CsiError):
    """Ends the handling of a request. `reason` is one word of ours, safe to send back and to log."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


@dataclass(frozen=True)
class AuthHeaders:
    """The headers that authenticate a request, as they were sent: nothing is verified yet."""

    authorization: str
    signature: str
    timestamp: str
    request_id: str


def check_length(headers: Headers, cap: int) -> None:
    """Reject a Content-Length above the cap. A body without a length is measured while it is read."""
    lengths = headers.getlist("content-length")
    if not lengths:
        return
    if "transfer-encoding" in headers:  # a proxy and this server could see different ends of the request
        raise RequestError(400, "malformed_length")
    if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
        raise RequestError(400, "malformed_length")
    digits = lengths[0].lstrip("0")
    if len(digits) > 18 or int(digits or "0") > cap:
        raise RequestError(413, "body_too_large")


def read_auth_headers(headers: Headers) -> AuthHeaders:
    """Each header must be there exactly once: with two of them, a proxy and we could choose different ones."""
    values = []
    for name in ("authorization", "x-csi-signature", "x-csi-timestamp", "x-csi-request-id"):
        given = headers.getlist(name)
        if len(given) != 1:
            raise RequestError(401, "doubled_header" if given else "missing_header")
        values.append(given[0])
    return AuthHeaders(*values)


def check_bearer(authorization: str, tokens: list[str]) -> None:
    """Compare with every token, in a time that depends on neither a token's text nor its length."""
    scheme, _, given = authorization.partition(" ")
    matches = [hmac.compare_digest(_digest(given.strip(" ")), _digest(token)) for token in tokens]
    if scheme.lower() != "bearer" or not any(matches):
        raise RequestError(401, "bad_credentials")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class RequestBody:
    """A request's bytes, which are read once, up to a size and a deadline, or discarded."""

    def __init__(self, request: Request, *, cap: int, deadline: float) -> None:
        self._chunks = request.stream()
        self._cap = cap
        self._deadline = deadline
        # A client that sends `Expect: 100-continue` sends no body before we begin to read it.
        self._is_sent = "expect" not in request.headers

    async def read(self) -> bytes:
        """The whole body. RequestError when it is too long, too slow or incomplete."""
        self._is_sent = True
        body = bytearray()
        try:
            with anyio.fail_after(self._deadline):
                async for chunk in self._chunks:
                    body += chunk
                    if len(body) > self._cap:
                        raise RequestError(413, "body_too_large")
        except TimeoutError:
            raise RequestError(408, "body_timeout") from None
        except ClientDisconnect:
            raise RequestError(400, "incomplete_body") from None
        return bytes(body)

    async def discard(self) -> None:
        """Read what is left of a rejected body, within limits.

        Closing a socket with unread bytes resets the connection: the sender would see a network error and not our
        response.
        """
        size = 0
        if not self._is_sent:
            return
        with anyio.move_on_after(_DISCARD_SECONDS):
            try:
                async for chunk in self._chunks:
                    size += len(chunk)
                    if size > self._cap:
                        return
            except ClientDisconnect:
                return
