"""The body of one request: read once, up to a size and a deadline."""

import anyio
from starlette.requests import ClientDisconnect, Request

from csi.receiver.request_error import RefusalError

_DISCARD_SECONDS = 5


class Upload:
    """Bytes on their way in."""

    def __init__(self, request: Request, *, cap: int, deadline: float) -> None:
        self._chunks = request.stream()
        self._cap = cap
        self._deadline = deadline
        self._wanted = "expect" not in request.headers

    async def read(self) -> bytes:
        """The whole body, or the RefusalError for one that is too long, too slow or cut off."""
        self._wanted = True
        try:
            with anyio.fail_after(self._deadline):
                return await self._collect()
        except TimeoutError:
            raise RefusalError(408, "body_timeout") from None
        except ClientDisconnect:
            raise RefusalError(400, "incomplete_body") from None

    async def discard(self) -> None:
        """Swallow a refused body, within limits: closing on unread bytes would reset the connection,
        and the sender would see a network fault instead of our answer."""
        if not self._wanted:
            return  # it asked with `Expect: 100-continue` and was not told to go on
        size = 0
        with anyio.move_on_after(_DISCARD_SECONDS):
            try:
                async for chunk in self._chunks:
                    size += len(chunk)
                    if size > self._cap:
                        return
            except ClientDisconnect:
                return

    async def _collect(self) -> bytes:
        body = bytearray()
        async for chunk in self._chunks:
            body += chunk
            if len(body) > self._cap:
                raise RefusalError(413, "body_too_large")
        return bytes(body)
