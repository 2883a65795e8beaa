"""`/mcp`: the MCP server over HTTP, behind the tokens of the admin API."""

from importlib import import_module
from types import ModuleType
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from csi.errors import CsiError
from csi.web import auth, health
from csi.web.guards import check_brake, note_wrong, read_body, replayed
from csi.web.mcp.audit_records import Caller
from csi.web.mcp.calls import ToolCalls
from csi.web.mcp.event_requests import EventRequests
from csi.web.responses import HttpProblem, problem
from csi.web.shared_state import Sidecar

CALLER = "csi.caller"
NOT_INSTALLED = "the MCP server needs the extra mcp, which is not installed: pip install 'creator-signals[mcp]'"
READ_ONLY = "this token is read-only; changes need CSI_ADMIN_TOKEN and features.mcp_write: true"
SWITCHED_OFF = "changes through MCP are switched off; set features.mcp_write: true"


class McpEndpoint:
    """One POST is one message of an agent. The SDK is loaded by the first of them."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._calls = ToolCalls(sidecar)
        self._sdk: ModuleType | None = None
        self._events = EventRequests(sidecar)
        self._server: Any = None
        self._serves_events = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            scope[CALLER] = await self._caller(request)
            sdk = await self._loaded()
            body = await read_body(request)
        except HttpProblem as error:
            self._sidecar.warn("mcp request refused", error)
            if error.status == 401 and "authorization" in request.headers:
                note_wrong(self._sidecar, request)
            headers = {401: {"WWW-Authenticate": 'Bearer realm="csi"'}, 405: {"Allow": "POST"}}.get(error.status)
            await problem(error.status, str(error), headers)(scope, receive, send)
        except CsiError as error:
            self._sidecar.warn("request failed: configuration or database not readable", error)
            await problem(503, health.unreadable(error), {"Retry-After": "5"})(scope, receive, send)
        else:
            await sdk.serve_request(self._server, scope, replayed(body, receive), send)

    async def _caller(self, request: Request) -> Caller:
        settings = await self._sidecar.settings()
        if not settings.features.mcp:
            raise HttpProblem(404, "the MCP server is switched off (features.mcp)")
        rules = auth.access_rules(settings)
        check_brake(self._sidecar, request)
        # Every message is a POST: what the read-only token may do is decided by the tool.
        role = auth.authorize_api_request(rules, "POST", request.headers, reader_methods=("POST",))
        if request.method != "POST":
            raise HttpProblem(405, "send MCP messages by POST; this server opens no streams")
        client = request.client.host if request.client else None
        may_change = role == "admin" and settings.features.mcp_write
        return Caller(role, client, may_change, READ_ONLY if role == "reader" else SWITCHED_OFF)

    async def _loaded(self) -> ModuleType:
        if self._sdk is None:
            self._sdk = await to_thread.run_sync(load_sdk)
        serves_events = (await self._sidecar.settings()).features.mcp_events
        if self._server is None or serves_events != self._serves_events:
            events = self._events if serves_events else None
            self._server = self._sdk.create_server(self._calls, lambda request: request.scope[CALLER], events)
            self._serves_events = serves_events
        return self._sdk


def load_sdk() -> ModuleType:
    """csi.web.mcp.server. HttpProblem where the extra is not installed."""
    try:
        return import_module("csi.web.mcp.server")
    except ModuleNotFoundError as error:
        raise HttpProblem(501, NOT_INSTALLED) from error
