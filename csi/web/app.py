"""The sidecar as an ASGI app: health, metrics, the admin API behind its door, the dashboard in its hall."""

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
from starlette.types import ASGIApp

from csi import clock
from csi.errors import CsiError, StoreError
from csi.runtime import Runtime
from csi.store import error_causes
from csi.web import api, health, metrics, openapi
from csi.web.admin_endpoint import Porter
from csi.web.dashboard_auth import Hall
from csi.web.facts import gather
from csi.web.health import Facts, Report
from csi.web.middleware import Edge
from csi.web.page_rendering import plain_page, show_file
from csi.web.pages import pages
from csi.web.responses import problem, reply
from csi.web.runtime_access import Sidecar

CANNOT_READ = "the configuration or the database cannot be read; the log says why"

Handlers = Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]]

_SENTENCES = {404: "there is nothing here", 405: "this method is not allowed here"}


def create_app(open_runtime: Callable[[], Runtime]) -> Starlette:
    """Nothing is opened here: `open_runtime` is called at the first request, or when the server starts.

    `app.state.reset()` forgets the runtime, so that the next request opens one anew (tests, changed environment).
    """
    sidecar = Sidecar(open_runtime)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await sidecar.wake()
        yield
        sidecar.forget()

    porter = Porter(_guarded([one.route() for one in api.operations()], _HANDLERS), sidecar)
    rooms = [route for page in pages() for route in page.routes]
    hall = Hall(_guarded(rooms, _PAGE_HANDLERS), sidecar)
    app = Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/livez", livez),
            Route("/metrics", show_metrics),
            Route("/openapi.json", show_document),
            Route("/admin", porter),
            Mount("/admin", porter),
            Route("/static/{name}", show_file),
            *(Route(path, hall) for path in dict.fromkeys(["/login", "/logout", *(room.path for room in rooms)])),
        ],
        middleware=[Middleware(Edge)],
        exception_handlers=_HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a redirect would be built from the Host header
    app.state.sidecar = sidecar
    app.state.reset = sidecar.forget
    return app


def _guarded(routes: Sequence[Route], handlers: Handlers) -> ASGIApp:
    """With an exception layer of its own, so that whoever stands before it sees the status of every answer."""
    return ExceptionMiddleware(Router(routes, redirect_slashes=False), handlers=handlers)


async def healthz(request: Request) -> Response:
    """200 as long as this process answers; it asks nobody."""
    return reply({"status": "healthy", "timestamp": clock.iso(clock.now())})


async def readyz(request: Request) -> Response:
    return await _report(request, health.readiness, "not_ready")


async def livez(request: Request) -> Response:
    return await _report(request, health.liveness, "stalled")


async def show_metrics(request: Request) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    return Response(await sidecar.ask(metrics.render), headers={"Content-Type": metrics.CONTENT_TYPE})


async def show_document(request: Request) -> Response:
    return reply(openapi.document())


async def _report(request: Request, judge: Callable[[Facts], Report], otherwise: str) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    try:
        report = judge(await sidecar.ask(gather))
    except CsiError as error:
        sidecar.say("health cannot be told", error)
        report = health.unknown(otherwise, _why(error), clock.now())
    return reply(report.body, 200 if report.is_good else 503)


def _why(error: CsiError) -> str:
    """In a sentence of ours: the error's own may name paths and hosts."""
    known = error_causes.identify(error) if isinstance(error, StoreError) else error_causes.UNUSABLE
    return CANNOT_READ if known is error_causes.UNUSABLE else f"{known.text}: {known.remedy}"


async def _unavailable(request: Request, error: Exception) -> Response:
    sidecar: Sidecar = request.app.state.sidecar
    sidecar.say("request cannot be answered", str(error))
    return problem(503, CANNOT_READ, {"Retry-After": "5"})


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    return problem(status, _SENTENCES.get(status, "this request is refused"), headers)


async def _page_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return plain_page("refused.html", status, code=status, detail=_SENTENCES.get(status, "This request is refused."))


_HANDLERS: Handlers = {HTTPException: _http_error, CsiError: _unavailable}
_PAGE_HANDLERS: Handlers = {HTTPException: _page_error}
