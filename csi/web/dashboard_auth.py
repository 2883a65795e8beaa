"""The dashboard's hall: who has a session may look, who has the admin token may act, and every act is written down."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from csi.errors import CsiError
from csi.logs import log
from csi.web import health, session
from csi.web.admin_endpoint import read_body
from csi.web.audit import Act
from csi.web.auth import SAFE_METHODS, Refused, Rule, host_of, is_own_site, role_of, rule_of
from csi.web.facts import gather
from csi.web.page_rendering import Visitor, plain_page
from csi.web.runtime_access import Sidecar
from csi.web.session import Session

MAX_FIELDS = 200
LONGEST_NEXT = 300
CANNOT_READ = "The configuration or the database cannot be read; the log says why."


class Hall:
    """The only way to the pages inside."""

    def __init__(self, inside: ASGIApp, sidecar: Sidecar) -> None:
        self._inside = inside
        self._sidecar = sidecar
        self._ended: dict[str, float] = {}
        """Sessions that signed out before their time."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await self._receive(request, receive, send)
        except CsiError as error:
            self._sidecar.say("request cannot be answered", error)
            answer = _refusal(503, CANNOT_READ)
        if answer is not None:
            await answer(scope, receive, send)

    async def _receive(self, request: Request, receive: Receive, send: Send) -> Response | None:
        """The answer; None: somebody inside has given it."""
        settings = await self._sidecar.settings()
        rule = rule_of(settings)
        refused = _check(rule, request, is_served=settings.features.dashboard)
        if refused is not None:
            return _refusal(refused.status, refused.detail)
        if not (rule.token or rule.read_token):
            return await self._closed()
        if request.url.path == "/login":
            return await self._log_in(request, rule)
        found = self._session(request, rule)
        if found is None:
            return _to_login(request)
        return await self._enter(request, rule, found, receive, send)

    async def _enter(
        self, request: Request, rule: Rule, found: Session, receive: Receive, send: Send
    ) -> Response | None:
        key = session.key_of(rule)
        request.state.visitor = Visitor(found.role, key, session.form_token(found, key))
        if request.method in SAFE_METHODS:
            await self._inside(request.scope, receive, send)
            return None
        form = await _form(request)
        if isinstance(form, Refused):
            return _refusal(form.status, form.detail)
        if not session.is_form_token(form.pop("form_token", ""), found, key):
            return _refusal(403, "This form is not from this session. Load the page again.")
        if request.url.path == "/logout":
            return self._log_out(found)
        if found.role != "admin":
            return _refusal(403, "This session may only look. Sign in with CSI_ADMIN_TOKEN to act.")
        request.state.form = form
        detail = urlencode(form)
        act = await Act.begin(self._sidecar, request, via="dashboard", role=found.role, detail=detail)
        await act.witness(self._inside, receive, send)
        return None

    # ── in and out ──────────────────────────────────────────────────────────────────────────────────────

    async def _closed(self) -> Response:
        """Without a token there is nothing to look at but what `/readyz` tells everybody."""
        report = await self._sidecar.ask(lambda rt: health.readiness(gather(rt)))
        return plain_page("closed.html", 403, is_ready=report.is_good, reasons=report.body["reasons"])

    async def _log_in(self, request: Request, rule: Rule) -> Response:
        wanted = _own_path(request.query_params.get("next", "/"))
        if request.method in SAFE_METHODS:
            return plain_page("login.html", next=wanted, wrong=False)
        form = await _form(request)
        if isinstance(form, Refused):
            return _refusal(form.status, form.detail)
        role = role_of(rule, form.get("token", "").strip())
        if role is None:
            self._sidecar.say("dashboard sign-in refused", "a token that is not ours")
            return plain_page("login.html", 401, next=wanted, wrong=True)
        log.info("dashboard sign-in", role=role, client=request.client.host if request.client else None)
        answer = RedirectResponse(_own_path(form.get("next", "/")), 303)
        _set_cookie(answer, request, session.seal(session.new_session(role, self._sidecar.now()), session.key_of(rule)))
        return answer

    def _log_out(self, found: Session) -> Response:
        self._ended[found.number] = found.until
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(session.COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    def _session(self, request: Request, rule: Rule) -> Session | None:
        now = self._sidecar.now()
        self._ended = {number: until for number, until in self._ended.items() if until > now}
        found = session.unseal(request.cookies.get(session.COOKIE, ""), session.key_of(rule), now)
        return found if found is not None and found.number not in self._ended else None


def _check(rule: Rule, request: Request, *, is_served: bool) -> Refused | None:
    if not is_served:
        return Refused(404, "The dashboard is switched off (features.dashboard).")
    if host_of(request.headers) not in rule.hosts:
        return Refused(421, "This Host is not served here; add it to web.allowed_hosts.")
    if request.method not in SAFE_METHODS and not is_own_site(rule, request.headers):
        return Refused(403, "Requests from another site are refused.")
    return None


async def _form(request: Request) -> dict[str, str] | Refused:
    """The fields of a form; of a name that is there twice, the last."""
    body = await read_body(request)
    if isinstance(body, Refused):
        return body
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        return Refused(400, "This form cannot be read.")


def _set_cookie(answer: Response, request: Request, sealed: str) -> None:
    """`Secure` where the browser says that it came by https: a proxy does TLS, so the scheme here does not tell."""
    by_https = request.headers.get("origin", "").startswith("https://")
    answer.set_cookie(
        session.COOKIE,
        sealed,
        max_age=session.SESSION_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=by_https,
    )


def _to_login(request: Request) -> Response:
    if request.method not in SAFE_METHODS:
        return _refusal(401, "Your session is over. Sign in and try again.")
    query: Mapping[str, str] = {"next": _own_path(str(request.url.path))}
    return RedirectResponse(f"/login?{urlencode(query)}" if request.url.path != "/" else "/login", 303)


def _own_path(text: str) -> str:
    """A path of ours, never another site's address."""
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isascii() and text.isprintable()
    return text if is_ours and len(text) <= LONGEST_NEXT else "/"


def _refusal(status: int, detail: str) -> Response:
    return plain_page("refused.html", status, code=status, detail=detail)
