"""The admin API's porter: asks the door, reads the body within limits, and sees that every act is written down."""

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from csi.web.audit import Act
from csi.web.auth import SAFE_METHODS, Refused, Role, admit, rule_of
from csi.web.responses import problem
from csi.web.runtime_access import Sidecar

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
            await self._act(request, verdict, receive, send)

    async def _act(self, request: Request, role: Role, receive: Receive, send: Send) -> None:
        body = await read_body(request)
        if isinstance(body, Refused):
            await _refusal(body)(request.scope, receive, send)
            return
        act = await Act.begin(self._sidecar, request, via="api", role=role, detail=body.decode("utf-8", "replace"))
        await act.witness(self._inside, _replay(body, receive), send)


def _refusal(refused: Refused) -> Response:
    headers = {"WWW-Authenticate": 'Bearer realm="csi"'} if refused.status == 401 else {}
    return problem(refused.status, refused.detail, headers)


async def read_body(request: Request) -> bytes | Refused:
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
