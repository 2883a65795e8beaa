"""The outermost layer: no answer without its security headers, no exception beyond it, no crowd inside."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from csi.logs import log
from csi.web.responses import problem

MAX_IN_FLIGHT = 200
ALWAYS_ANSWERED = "/healthz"

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class Edge:
    """Counts the requests inside, so that `/healthz` is answered however many others wait."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _Guarded(send)
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            await problem(400, "no text holds a NUL")(scope, receive, guarded)  # PostgreSQL cannot even be asked
            return
        if self._inside >= MAX_IN_FLIGHT and scope["path"] != ALWAYS_ANSWERED:
            crowd = problem(503, "too many requests at once; try again shortly", {"Retry-After": "1"})
            await crowd(scope, receive, guarded)
            return
        self._inside += 1
        try:
            await self._enter(scope, receive, guarded)
        finally:
            self._inside -= 1

    async def _enter(self, scope: Scope, receive: Receive, send: "_Guarded") -> None:
        try:
            await self._app(scope, receive, send)
        except Exception:
            log.exception("request failed", method=scope["method"], path=scope["path"])
            if send.begun:
                raise  # half an answer is out: only a broken connection can tell that it is not whole
            await problem(500, "this request failed; the log says why")(scope, receive, send)


class _Guarded:
    """A `send` that adds the headers and knows whether the answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
