"""The dashboard's password (Basic authentication), with a brake for clients that guess it."""

import base64
import binascii
import hashlib
import hmac

from starlette.exceptions import HTTPException
from starlette.requests import Request

from csi.token_guess_limit import GuessBrake


class DashboardPassword:
    """One password for all pages, feeds and figures."""

    def __init__(self, password: str) -> None:
        self._digest = _digest(password)
        self._brake = GuessBrake()

    def is_given(self, request: Request) -> bool:
        """Whether the request has the password. HTTPException 429 while its address has to wait."""
        given = request.headers.getlist("authorization")
        if not given:
            return False
        address = request.client.host if request.client else ""
        if seconds := self._brake.wait_seconds(address):
            raise HTTPException(429, headers={"Retry-After": str(seconds)})
        scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        try:
            _, _, word = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            word = ""
        # Hashes have one length, so the comparison takes the same time for every password.
        same = hmac.compare_digest(_digest(word), self._digest) and scheme.lower() == "basic"
        if not same:
            self._brake.note_wrong(address)
        return same


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
