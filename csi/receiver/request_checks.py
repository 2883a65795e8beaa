"""Who is let in: the checks made before a single byte of the body is read."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Protocol

from csi.receiver.request_error import RefusalError


class Headers(Protocol):
    """What we need of a request's headers, whatever serves them."""

    def getlist(self, key: str) -> list[str]: ...


@dataclass(frozen=True)
class Claims:
    """What the headers claim. Nothing here is believed yet."""

    authorization: str
    signature: str
    timestamp: str
    request_id: str


def check_length(headers: Headers, cap: int) -> None:
    """Refuse a body that says it is too long. One without a length is measured while it is read."""
    lengths = headers.getlist("content-length")
    if not lengths:
        return
    if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
        raise RefusalError(400, "malformed_length")
    digits = lengths[0].lstrip("0")
    if len(digits) > 18 or int(digits or "0") > cap:
        raise RefusalError(413, "body_too_large")


def read_claims(headers: Headers) -> Claims:
    return Claims(
        authorization=_only_one(headers, "authorization"),
        signature=_only_one(headers, "x-csi-signature"),
        timestamp=_only_one(headers, "x-csi-timestamp"),
        request_id=_only_one(headers, "x-csi-request-id"),
    )


def check_bearer(authorization: str, tokens: list[str]) -> None:
    """Every token is compared, in time that depends on neither its text nor its length."""
    scheme, _, given = authorization.partition(" ")
    matches = [hmac.compare_digest(_digest(given.strip(" ")), _digest(token)) for token in tokens]
    if scheme.lower() != "bearer" or not any(matches):
        raise RefusalError(401, "bad_credentials")


def _only_one(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        raise RefusalError(401, "doubled_header" if values else "missing_header")
    return values[0]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
