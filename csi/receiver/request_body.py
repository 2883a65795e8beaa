"""The body of one request: read once, up to a size and a deadline."""

import anyio
from starlette.requests import ClientDisconnect, Request

from csi.receiver.request_error import RequestError

_DISCARD_SECONDS = 5


class RequestBody:
    """A request's bytes, which are either read or discarded."""

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
