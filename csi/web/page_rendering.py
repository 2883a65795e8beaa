"""Dashboard pages: their place in the navigation, how they are rendered, and how a change reports its result."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from csi import __version__, web_assets
from csi.errors import CsiError
from csi.logs import redact
from csi.runtime import Runtime
from csi.status.verdict import verdict
from csi.web import auth, formatting, live_parts
from csi.web.auth import Color, FlashMessage, Role
from csi.web.responses import problem
from csi.web.shared_state import Sidecar

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
WITH_ICONS = POLICY.replace("img-src 'self'", "img-src 'self' https:")
"""With `web.remote_icons`. # decision 0044"""
# Not `no-referrer` as elsewhere: a browser would send `Origin: null` with the forms of these pages.
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
RESULT = "csi.result"
"""In the scope of a request: the colour and the text that its operator is shown, for the audit log."""
STATIC = Path(__file__).parent / "static"


Context = dict[str, Any]
"""The values that a template shows."""
View = Callable[[Runtime, Request], Context]
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class DashboardPage:
    """One entry of the navigation and the routes behind it."""

    path: str
    title: str
    place: int
    count: Callable[[Runtime], int] | None = None
    """A number beside the title: what needs attention there. 0 is not shown."""
    also: tuple[str, ...] = ()
    """Other paths under which this entry is the present one."""
    key: str = ""
    """The shortcut: `g` and this letter."""
    is_listed: bool = True
    """Whether the navigation shows it."""
    routes: list[Route] = field(default_factory=list)

    def is_at(self, path: str) -> bool:
        """Whether the page at this path belongs to this entry."""
        return any(path == one or (one != "/" and path.startswith(f"{one}/")) for one in (self.path, *self.also))

    def view(self, path: str, template: str) -> Callable[[View], View]:
        """Decorates the function that reads what a template shows; it runs in the thread that renders."""

        def add(read: View) -> View:
            async def show(request: Request) -> Response:
                return await render_page(request, template, read)

            self.routes.append(Route(path, show, methods=["GET"]))
            return read

        return add

    def endpoint(self, method: Literal["GET", "POST"], path: str) -> Callable[[Endpoint], Endpoint]:
        """Decorates a coroutine function that answers with something else than a page."""

        def add(answer: Endpoint) -> Endpoint:
            self.routes.append(Route(path, answer, methods=[method]))
            return answer

        return add


@dataclass(frozen=True)
class Visitor:
    """The session of a request."""

    role: Role
    key: bytes
    form_token: str

    @property
    def may_act(self) -> bool:
        return self.role == "admin"


async def render_page(request: Request, template: str, read: View, status: int = 200) -> Response:
    """Reads the database and renders the page, both in one thread. `read` may replace the `message` of the cookie.

    A request of the page's own script gets only the live parts, or 304 where none changed.
    """
    from csi.web.pages import pages  # the pages import this module

    sidecar: Sidecar = request.app.state.sidecar
    visitor: Visitor = request.state.visitor
    message = auth.read_message(request.cookies.get(auth.MESSAGE_COOKIE, ""), visitor.key)
    shows_icons = (await sidecar.settings()).web.remote_icons
    is_live = live_parts.HEADER in request.headers

    def render(rt: Runtime) -> str:
        shared = {
            "now": rt.now(),
            "path": request.url.path,
            "visitor": visitor,
            "message": message,
            "nav": [(page, page.count(rt) if page.count else 0) for page in pages() if page.is_listed],
            "verdict": verdict(rt),
            "instance": rt.settings.csi.instance_id,
            "shows_icons": shows_icons,
        }
        return templates().get_template(template).render(shared | read(rt, request))

    html = await sidecar.read(render)
    if is_live and status == 200:
        return live_parts.respond(request, html)
    headers = HEADERS | {"Content-Security-Policy": WITH_ICONS} if shows_icons else HEADERS
    response = Response(live_parts.without_marks(html), status, media_type="text/html", headers=headers)
    if message is not None:
        response.delete_cookie(auth.MESSAGE_COOKIE, path="/", httponly=True, samesite="strict")
    return response


def standalone_page(template: str, status: int = 200, **context: Any) -> Response:
    """A page without navigation, for a browser without a session; it reads nothing."""
    html = templates().get_template(template).render(**context)
    return Response(html, status, media_type="text/html", headers=HEADERS)


def error_page(status: int, detail: str) -> Response:
    return standalone_page("error.html", status, code=status, detail=_sentence(detail))


async def error_in_navigation(request: Request, status: int, detail: str) -> Response:
    """For a browser with a session: the way back is the navigation."""
    context = {"code": status, "detail": _sentence(detail)}
    return await render_page(request, "not_found.html", lambda rt, _: context, status)


def _sentence(detail: str) -> str:
    return f"{detail[:1].upper()}{detail[1:]}."


async def change(request: Request, path: str, task: Callable[[Runtime], str]) -> Response:
    """Runs a change, and redirects to `path`, which shows its result or its error."""
    sidecar: Sidecar = request.app.state.sidecar
    try:
        return redirect(request, path, await sidecar.run(task))
    except CsiError as error:
        return redirect(request, path, str(error), "bad")


def redirect(request: Request, path: str, text: str, color: Color = "good") -> Response:
    """To a page that shows `text` once."""
    visitor: Visitor = request.state.visitor
    request.scope[RESULT] = (color, text)
    response = RedirectResponse(path, 303)
    cookie = auth.message_cookie(FlashMessage(color, redact(text)), visitor.key)
    response.set_cookie(auth.MESSAGE_COOKIE, cookie, auth.MESSAGE_SECONDS, httponly=True, samesite="strict")
    return response


def refused_message(request: Request, text: str) -> FlashMessage:
    """For a form that is shown again; the audit log has its text, too."""
    request.scope[RESULT] = ("bad", text)
    return FlashMessage("bad", redact(text))


def number_of(text: str | None) -> int | None:
    """The id in a parameter or form field; None for text that is not one."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def query_text(given: Mapping[str, object], **changes: object) -> str:
    """The query of a link: these parameters with some replaced, without empty ones."""
    return urlencode({name: value for name, value in {**given, **changes}.items() if value not in ("", None)})


@cache
def templates() -> Environment:
    """Every value is redacted and escaped. A missing name is an error, not an empty string."""
    made = Environment(
        loader=PackageLoader("csi.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: redact(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(formatting.FILTERS)
    made.globals.update(
        ago=formatting.ago,
        plural=formatting.plural,
        HEALTH=formatting.HEALTH,
        CAUSES=formatting.CAUSES,
        version=__version__,
        asset=asset,
        quoted=lambda text: quote(str(text), safe=""),
        query=query_text,
        live=live_parts.mark,
    )
    return made


@cache
def files() -> dict[str, bytes]:
    """The static files by name. No other file is ever opened."""
    return web_assets.shared_files() | web_assets.files_in(STATIC)


@cache
def asset(name: str) -> str:
    return web_assets.versioned_url("/static", name, files()[name])


async def show_file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in files():
        return problem(404, "there is nothing at this path")
    return Response(files()[name], media_type=web_assets.media_type(name), headers=web_assets.CACHE_HEADERS)
