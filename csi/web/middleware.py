"""The outermost ASGI layer: security headers on every response, no exception beyond it, a limit of requests."""

import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from csi.logs import log
from csi.web.responses import problem

MAX_IN_FLIGHT = 200
ALWAYS_SERVED = "/healthz"

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class SidecarMiddleware:
    """Counts the requests in flight, so that `/healthz` is served however many others wait."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        respond = _HeaderSend(send)
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            # PostgreSQL refuses text with NUL, so no query could use it.
            await problem(400, "text must not contain NUL")(scope, receive, respond)
        elif self._in_flight >= MAX_IN_FLIGHT and scope["path"] != ALWAYS_SERVED:
            busy = problem(503, "too many requests at once; try again shortly", {"Retry-After": "1"})
            await busy(scope, receive, respond)
        else:
            self._in_flight += 1
            try:
                await self._app(scope, self._waiting(receive), respond)
            except Exception:
                # Redaction knows the tokens that are set; a mistyped one is as good as secret, too.
                path = re.sub(r"^/feeds/.+/", "/feeds/…/", scope["path"])
                log.exception("request failed", method=scope["method"], path=path)
                if respond.has_begun:
                    raise  # part of the response is sent: only a broken connection says that it is incomplete
                await problem(500, "this request failed; the log says why")(scope, receive, respond)
            finally:
                self._in_flight -= 1

    def _waiting(self, receive: Receive) -> Receive:
        """The same `receive`. A request does not count while its client has yet to send the body: clients that send
        nothing must not keep others out, and the server closes the oldest of them at its connection limit."""
        more_body = True

        async def received() -> Message:
            nonlocal more_body
            if not more_body:
                return await receive()
            self._in_flight -= 1
            try:
                message = await receive()
            finally:
                self._in_flight += 1
            more_body = bool(message.get("more_body"))
            return message

        return received


class _HeaderSend:
    """A `send` that adds the headers and knows whether the response has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
