"""The sidecar as an ASGI app: health, metrics, the admin API and the dashboard behind their guards."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from csi import clock
from csi.errors import CsiError, StoreError
from csi.runtime import Runtime
from csi.status.facts import SystemFacts, gather
from csi.store import database_faults
from csi.web import api, docs_pages, feeds, health, metrics, openapi
from csi.web.auth import SAFE_METHODS
from csi.web.config_watch import ConfigWatch, watch_in_background
from csi.web.guards import UNKNOWN_PATH, ApiGuard, DashboardGuard
from csi.web.health import HealthReport
from csi.web.hooks import HookListener, HookPort
from csi.web.mcp.endpoint import McpEndpoint
from csi.web.middleware import SidecarMiddleware
from csi.web.page_rendering import error_in_navigation, show_file
from csi.web.pages import pages
from csi.web.responses import problem, reply
from csi.web.shared_state import Sidecar
from csi.worker.sidecar_alerting import AlertStandby, run_in_background

Handlers = Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]]

_DETAILS = {404: "there is nothing at this path", 405: "this method is not allowed here"}


def create_app(
    open_runtime: Callable[[], Runtime], address: str | None = None, hook_port: int | None = None
) -> Starlette:
    """Opens nothing: `open_runtime` is called at the first request, or when the server starts. `address`: where it
    listens, for `csi doctor`. `hook_port`: the port that serves /hooks, and nothing else, if it has one of its own.

    `app.state.reset()` closes the runtime, so that the next request opens a new one (tests, changed environment).
    """
    sidecar = Sidecar(open_runtime)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await sidecar.open()
        stopping = threading.Event()
        run_in_background(AlertStandby(address), sidecar.runtime, stopping)
        watch_in_background(ConfigWatch(sidecar), stopping)
        yield
        stopping.set()
        sidecar.close()

    admin = ApiGuard(_router([one.route() for one in api.operations()], _HANDLERS), sidecar)
    page_routes = [route for page in pages() for route in page.routes]
    dashboard = DashboardGuard(_router(page_routes, _PAGE_HANDLERS), sidecar)
    page_paths = dict.fromkeys(["/login", "/logout", *(route.path for route in page_routes)])
    app = Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/livez", livez),
            Route("/metrics", show_metrics),
            Route("/openapi.json", show_document),
            Route("/admin", admin),
            Mount("/admin", admin),
            Route("/mcp", McpEndpoint(sidecar)),
            Route("/static/{name}", show_file),
            Route("/docs", docs_pages.show_document),
            Route("/docs/{name:path}", docs_pages.show_document),
            *feeds.routes(),
            Mount("/hooks", HookListener(sidecar)),
            *(Route(path, dashboard) for path in page_paths),
        ],
        middleware=[Middleware(SidecarMiddleware), Middleware(HookPort, port=hook_port)],
        exception_handlers=_HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a redirect would be built from the Host header
    app.router.default = UnknownPath(dashboard)  # not a route: a known path with another method stays a 405
    app.state.sidecar = sidecar
    app.state.feed_dates = feeds.FeedDates()
    app.state.reset = sidecar.close
    return app


class UnknownPath:
    """A page for a browser, `problem+json` for every other client."""

    def __init__(self, dashboard: ASGIApp) -> None:
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.method in SAFE_METHODS and "text/html" in request.headers.get("accept", ""):
            scope[UNKNOWN_PATH] = True
            await self._dashboard(scope, receive, send)
        else:
            await problem(404, _DETAILS[404])(scope, receive, send)


def _router(routes: Sequence[Route], handlers: Handlers) -> ASGIApp:
    """With exception handlers of its own, so that the guard in front of it sees the status of every response."""
    return ExceptionMiddleware(Router(routes, redirect_slashes=False), handlers=handlers)


async def healthz(request: Request) -> Response:
    """200 while this process serves requests; it reads nothing."""
    return reply({"status": "healthy", "timestamp": clock.iso(clock.now())})


async def readyz(request: Request) -> Response:
    return await _report(request, health.readiness, "not_ready")


async def livez(request: Request) -> Response:
    return await _report(request, health.liveness, "stalled")


async def show_metrics(request: Request) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    try:
        page = await sidecar.read(metrics.render)
    except StoreError as error:
        sidecar.warn("metrics without the database", error)
        page = metrics.render_fault(database_faults.identify(error))
    return Response(page, headers={"Content-Type": metrics.CONTENT_TYPE})


async def show_document(request: Request) -> Response:
    return reply(openapi.document())


async def _report(request: Request, judge: Callable[[SystemFacts], HealthReport], otherwise: str) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    try:
        report = judge(await sidecar.read(gather))
    except CsiError as error:
        sidecar.warn("health not readable", error)
        report = health.unknown(otherwise, health.unreadable(error), clock.now())
    return reply(report.body, 200 if report.is_good else 503)


async def _unavailable(request: Request, error: Exception) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    sidecar.warn("request failed: configuration or database not readable", str(error))
    reason = health.unreadable(error) if isinstance(error, CsiError) else health.CANNOT_READ
    return problem(503, reason, {"Retry-After": "5"})


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    return problem(status, _DETAILS.get(status, "this request is refused"), headers)


async def _page_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return await error_in_navigation(request, status, _DETAILS.get(status, "this request is refused"))


_HANDLERS: Handlers = {HTTPException: _http_error, CsiError: _unavailable}
_PAGE_HANDLERS: Handlers = {HTTPException: _page_error}
