"""Checks of a request's headers, made before a byte of its body is read."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Protocol

from csi.receiver.request_error import RequestError


class RequestHeaders(Protocol):
    """The one method that the checks need of any framework's headers."""

    def getlist(self, key: str) -> list[str]: ...


@dataclass(frozen=True)
class AuthHeaders:
    """The headers that authenticate a request, as they were sent: nothing is verified yet."""

    authorization: str
    signature: str
    timestamp: str
    request_id: str


def check_length(headers: RequestHeaders, cap: int) -> None:
    """Reject a Content-Length above the cap. A body without a length is measured while it is read."""
    lengths = headers.getlist("content-length")
    if not lengths:
        return
    if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
        raise RequestError(400, "malformed_length")
    digits = lengths[0].lstrip("0")
    if len(digits) > 18 or int(digits or "0") > cap:
        raise RequestError(413, "body_too_large")


def read_auth_headers(headers: RequestHeaders) -> AuthHeaders:
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
