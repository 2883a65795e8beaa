"""A page of the dashboard: its place in the navigation, and how it is drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from csi import __version__, web_assets
from csi.logs import redact
from csi.runtime import Runtime
from csi.status.verdict import Problem, verdict
from csi.web import formatting, session
from csi.web.auth import Role
from csi.web.responses import problem
from csi.web.runtime_access import Sidecar
from csi.web.session import FlashMessage, Mood

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# With `no-referrer`, as everywhere else, a browser sends `Origin: null` with our own forms.
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
STATIC = Path(__file__).parent / "static"


@dataclass(frozen=True)
class Page:
    """One entry of the navigation and the routes behind it."""

    path: str
    title: str
    place: int
    routes: Sequence[Route]
    count: Callable[[Runtime], int] | None = None
    """A number beside the title: what there needs somebody. 0 is not shown."""


@dataclass(frozen=True)
class Visitor:
    """Who looks, as the hall let him in."""

    role: Role
    key: bytes
    form_token: str

    @property
    def may_act(self) -> bool:
        return self.role == "admin"


Facts = dict[str, Any]


async def present(request: Request, template: str, question: Callable[[Runtime], Facts], status: int = 200) -> Response:
    """Ask the database and draw the page, both in a thread of their own."""
    sidecar: Sidecar = request.app.state.sidecar
    visitor: Visitor = request.state.visitor
    message = session.read_message(request.cookies.get(session.MESSAGE_COOKIE, ""), visitor.key)
    html = await sidecar.ask(lambda rt: _draw(rt, template, request.url.path, visitor, message, question(rt)))
    answer = html_response(html, status)
    if message is not None:
        answer.delete_cookie(session.MESSAGE_COOKIE, path="/", httponly=True, samesite="strict")
    return answer


def _draw(rt: Runtime, template: str, path: str, visitor: Visitor, message: FlashMessage | None, facts: Facts) -> str:
    from csi.web.pages import pages  # they are made of this module

    nav = [(page, page.count(rt) if page.count else 0) for page in pages()]
    shared = {"now": rt.now(), "path": path, "visitor": visitor, "message": message, "nav": nav}
    return draw(template, **shared, problems=_problems(rt), instance=rt.settings.csi.instance_id, **facts)


def draw(template: str, **facts: Any) -> str:
    return templates().get_template(template).render(**facts)


def html_response(html: str, status: int = 200) -> Response:
    return Response(html, status, media_type="text/html", headers=HEADERS)


def standalone_page(template: str, status: int = 200, **facts: Any) -> Response:
    """A page without navigation, for a browser without a session; it reads nothing."""
    return html_response(draw(template, **facts), status)


def error_page(status: int, detail: str) -> Response:
    return standalone_page("error.html", status, code=status, detail=f"{detail[:1].upper()}{detail[1:]}.")


def back(request: Request, path: str, text: str, mood: Mood = "good") -> Response:
    """After an act: to a page that tells what came of it."""
    visitor: Visitor = request.state.visitor
    answer = RedirectResponse(path, 303)
    cookie = session.message_cookie(FlashMessage(mood, redact(text)), visitor.key)
    answer.set_cookie(session.MESSAGE_COOKIE, cookie, session.MESSAGE_SECONDS, httponly=True, samesite="strict")
    return answer


PLACES = {
    "worker_silent": "/schedule",
    "watches_overdue": "/schedule",
    "receiver_away": "/#destinations",
    "destination_paused": "/#destinations",
    "backlog_old": "/#waiting",
    "dead_letters": "/dead-letters",
}
"""The page that shows more of a problem; `/sources` for all others."""


def _problems(rt: Runtime) -> list[tuple[Problem, str]]:
    return [(problem, PLACES.get(problem.id, "/sources")) for problem in verdict(rt).problems]


def number_of(text: str | None) -> int | None:
    """The id in a parameter or form field; None for text that is not one."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


@cache
def templates() -> Environment:
    """Everything is freed of secrets and escaped, and a name that is missing is an error, not an empty place."""
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
    )
    return made


@cache
def files() -> dict[str, bytes]:
    """The static files by name; no other name is ever looked for."""
    return web_assets.shared_files() | web_assets.files_in(STATIC)


@cache
def asset(name: str) -> str:
    return web_assets.versioned_url("/static", name, files()[name])


async def show_file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in files():
        return problem(404, "there is nothing at this path")
    return Response(files()[name], media_type=web_assets.media_type(name), headers=web_assets.CACHE_HEADERS)
