"""The admin API's porter: asks the door, reads the body within limits, and writes down what was done."""

import time

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from csi.logs import log
from csi.web.answers import problem
from csi.web.door import SAFE_METHODS, Refused, admit, rule_of
from csi.web.sidecar import Sidecar

MAX_BODY = 1024 * 1024
BODY_SECONDS = 10.0


class Porter:
    """The only way to the routes inside."""

    def __init__(self, inside: ASGIApp, sidecar: Sidecar) -> None:
        self._inside = inside
        self._sidecar = sidecar

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)
        verdict = admit(rule_of(await self._sidecar.settings()), request.method, request.headers)
        if isinstance(verdict, Refused):
            self._sidecar.say("admin request refused", verdict.detail)
            await _refusal(verdict)(scope, receive, send)
        elif request.method in SAFE_METHODS:
            await self._inside(scope, receive, send)
        else:
            await self._act(request, scope, receive, send)

    async def _act(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read(request)
        if isinstance(body, Refused):
            await _refusal(body)(scope, receive, send)
            return
        audit = _Audit(request, send)
        try:
            await self._inside(scope, _replay(body, receive), audit)
        finally:
            audit.write()


class _Audit:
    """One log line for every action, whatever came of it."""

    def __init__(self, request: Request, send: Send) -> None:
        self._action = f"{request.method} {request.scope['path']}"[:200]
        self._client = request.client.host if request.client else None
        self._send = send
        self._started = time.monotonic()
        self._status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        await self._send(message)

    def write(self) -> None:
        seconds = round(time.monotonic() - self._started, 3)
        log.info("admin action", action=self._action, client=self._client, status=self._status, seconds=seconds)


def _refusal(refused: Refused) -> Response:
    headers = {"WWW-Authenticate": 'Bearer realm="csi"'} if refused.status == 401 else {}
    return problem(refused.status, refused.detail, headers)


async def _read(request: Request) -> bytes | Refused:
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 9 or int(length) > MAX_BODY):
        return Refused(413, f"the body is larger than {MAX_BODY} bytes")
    try:
        with anyio.fail_after(BODY_SECONDS):
            return await _collect(request)
    except TimeoutError:
        return Refused(408, f"the body did not arrive within {BODY_SECONDS:g} s")
    except ClientDisconnect:
        return Refused(400, "the body was cut off")


async def _collect(request: Request) -> bytes | Refused:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            return Refused(413, f"the body is larger than {MAX_BODY} bytes")
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
