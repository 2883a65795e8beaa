"""`/hooks/<name>/<token>`: pushes of hubs and webhooks of others. A message is stored, then answered.

The path holds a token: it is neither logged nor shown in an error, and every address that does not exist gets the same
404, before its body is read.
"""

import re
from collections import deque
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from csi.config.settings import Settings
from csi.errors import CsiError
from csi.logs import log
from csi.pipeline import inbound_receive
from csi.web.guards import read_body
from csi.web.responses import HttpProblem, problem, reply
from csi.web.shared_state import Sidecar

HOOKS = "/hooks"
_PATH = re.compile(rf"(?:{HOOKS})?/([A-Za-z0-9_.-]{{1,64}})/([A-Za-z0-9]{{1,128}})")
MINUTE = 60.0
MAX_QUERY_FIELDS = 20


class HookPort:
    """With a port of their own, hooks are served there and nowhere else, and nothing else is served there."""

    def __init__(self, app: ASGIApp, port: int | None) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._port is not None:
            is_hook_port = (scope.get("server") or ("", 0))[1] == self._port
            if is_hook_port != scope["path"].startswith(f"{HOOKS}/"):
                await _not_found()(scope, receive, send)
                return
        await self._app(scope, receive, send)


class HookListener:
    """The one handler of /hooks."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._lately: dict[str, deque[float]] = {}
        """By sender, when its messages of the last minute arrived. Only senders that exist have an entry."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        try:
            response = await self._respond(Request(scope, receive))
        except HttpProblem as error:
            response = problem(error.status, str(error))
        except CsiError as error:
            self._sidecar.warn("message is not stored", error)
            response = problem(503, "the message could not be stored; try again later", {"Retry-After": "30"})
        except Exception as error:  # noqa: BLE001 the layer above would log the path, which holds the token
            log.exception("message is not stored", error=type(error).__name__)
            response = problem(503, "the message could not be stored; try again later", {"Retry-After": "30"})
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        settings = await self._sidecar.settings()
        match = _PATH.fullmatch(request.url.path)
        if match is None or not settings.serves_hooks or request.method not in ("GET", "POST"):
            return _not_found()
        sender = await self._sidecar.read(lambda rt: inbound_receive.find_sender(rt, match[1], match[2]))
        if sender is None:
            return _not_found()
        if request.method == "GET":
            # A hub asks whether we want the subscription.
            row, text = sender.subscription, str(request.url.query)
            if row is None:
                return _not_found()
            try:
                query = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS))
            except ValueError:
                return _not_found()
            challenge = await self._sidecar.read(lambda rt: inbound_receive.verify_intent(rt, row, query))
            return _not_found() if challenge is None else PlainTextResponse(challenge)
        if self._is_flooding(sender.name, settings):
            return problem(503, "too many messages in a minute", {"Retry-After": "60"})
        body = await read_body(request, settings.inbound.max_body_bytes)
        headers = Headers(scope=request.scope)
        answer = await self._sidecar.read(lambda rt: inbound_receive.receive(rt, sender, headers, body))
        if answer.status < 300:
            return reply({"status": answer.text}, answer.status)
        retry = {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
        return problem(answer.status, answer.text, retry)

    def _is_flooding(self, name: str, settings: Settings) -> bool:
        now, times = self._sidecar.now(), self._lately.setdefault(name, deque())
        while times and not 0 <= now - times[0] < MINUTE:
            times.popleft()
        if len(times) >= settings.inbound.max_messages_per_minute:
            return True
        times.append(now)
        return False


def _not_found() -> Response:
    return problem(404, "there is nothing at this path")
