"""ASGI guards in front of the admin API and the dashboard: authentication, request bodies and the audit log."""

import json
import os
import re
import time
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from csi import local_login
from csi.errors import CsiError
from csi.ingester.text import clean
from csi.logs import log, redact
from csi.logs.redaction import MASK
from csi.status.facts import gather
from csi.store import audit
from csi.web import auth, health
from csi.web.auth import SAFE_METHODS, AccessRules, Role, Session, access_rules, check_origin
from csi.web.page_rendering import RESULT, Visitor, error_page, standalone_page
from csi.web.responses import HttpProblem, problem
from csi.web.shared_state import Sidecar

MAX_BODY = 1024 * 1024
BODY_SECONDS = 10.0
MAX_FIELDS = 200
LONGEST_NEXT = 300
DETAIL_CHARS = 300
MAX_REFUSAL = 4_096
SECRET_KEY = re.compile(r'("secret\w*"\s*:\s*)"(?:[^"\\]|\\.)*"?')
"""A key of a JSON body that holds a secret, also one that no operation knows or accepts."""
UNKNOWN_PATH = "csi.unknown_path"
"""In the scope of a request whose path nothing serves: it is not worth a sign-in."""
SIGNED_OUT_FILE = "signed-out.json"


class ApiGuard:
    """Requests reach the operations of the admin API only through this guard."""

    def __init__(self, inner: ASGIApp, sidecar: Sidecar) -> None:
        self._inner = inner
        self._sidecar = sidecar

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            rules = access_rules(await self._sidecar.settings())
            check_brake(self._sidecar, request)
            role = auth.authorize_api_request(rules, request.method, request.headers)
            if request.method in SAFE_METHODS:
                await self._inner(scope, receive, send)
                return
            body = await read_body(request)
        except HttpProblem as error:
            self._sidecar.warn("admin request refused", error)
            headers = {"WWW-Authenticate": 'Bearer realm="csi"'} if error.status == 401 else {}
            if error.status == 401 and "authorization" in request.headers:
                note_wrong(self._sidecar, request)
            await problem(error.status, str(error), headers)(scope, receive, send)
            return
        again, detail = replayed(body, receive), SECRET_KEY.sub(rf'\1"{MASK}"', body.decode("utf-8", "replace"))
        await _run_audited(self._sidecar, self._inner, request, again, send, via="api", role=role, detail=detail)


class DashboardGuard:
    """Pages are shown to a browser with a session; the admin role can change things."""

    def __init__(self, inner: ASGIApp, sidecar: Sidecar) -> None:
        self._inner = inner
        self._sidecar = sidecar
        self._ended: dict[str, float] | None = None
        """Ids of sessions that signed out before they expired, with their expiry; None: the file is not read yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        try:
            response = await self._respond(Request(scope, receive), receive, send)
        except HttpProblem as error:
            response = error_page(error.status, str(error))
        except CsiError as error:
            self._sidecar.warn("request failed: configuration or database not readable", error)
            response = error_page(503, health.unreadable(error))
        if response is not None:
            await response(scope, receive, send)

    async def _respond(self, request: Request, receive: Receive, send: Send) -> Response | None:
        """None: a page has sent the response."""
        settings = await self._sidecar.settings()
        rules = access_rules(settings)
        if not settings.features.dashboard:
            raise HttpProblem(404, "the dashboard is switched off (features.dashboard)")
        check_origin(rules, request.method, request.headers)
        if not (rules.token or rules.read_token):
            report = await self._sidecar.read(lambda rt: health.readiness(gather(rt)))
            facts = {"is_ready": report.is_good, "reasons": report.body["reasons"]}
            return standalone_page("no_token.html", 403, **facts)
        if request.url.path == "/login":
            return await self._sign_in(request, rules, settings.csi.state_dir)
        key, now = auth.signing_key(rules), self._sidecar.now()
        path = settings.csi.state_dir / SIGNED_OUT_FILE
        known = _read_signed_out(path) if self._ended is None else self._ended
        self._ended = {number: until for number, until in known.items() if until > now}
        found = auth.read_cookie(request.cookies.get(auth.SESSION_COOKIE, ""), key, now)
        if found is None or found.number in self._ended:
            if request.scope.get(UNKNOWN_PATH):
                raise HttpProblem(404, "there is nothing at this path")
            if request.method not in SAFE_METHODS:
                raise HttpProblem(401, "your session has expired; sign in and try again")
            query = urlencode({"next": _own_path(request.url.path)})
            return RedirectResponse(f"/login?{query}" if request.url.path != "/" else "/login", 303)
        request.state.visitor = Visitor(found.role, key, auth.form_token(found, key))
        if request.method not in SAFE_METHODS:
            return await self._change(request, found, key, receive, send)
        await self._inner(request.scope, receive, send)
        return None

    async def _change(
        self, request: Request, found: Session, key: bytes, receive: Receive, send: Send
    ) -> Response | None:  # fmt: skip
        form = await _read_form(request)
        if not auth.is_form_token(form.pop("form_token", ""), found, key):
            raise HttpProblem(403, "this form is not from this session; load the page again")
        if request.url.path == "/logout":
            self._ended = (self._ended or {}) | {found.number: found.until}
            settings = await self._sidecar.settings()
            path = settings.csi.state_dir / SIGNED_OUT_FILE
            draft = path.with_name(f"{path.name}.{os.getpid()}")
            try:
                with os.fdopen(
                    os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w"
                ) as file:
                    json.dump(self._ended, file)
                os.replace(draft, path)
            except OSError as error:
                log.error(
                    "signed-out session could not be stored; it ends with this process only", error=error.strerror
                )
            response = RedirectResponse("/login", 303)
            response.delete_cookie(auth.SESSION_COOKIE, path="/", httponly=True, samesite="strict")
            return response
        if found.role != "admin":
            raise HttpProblem(403, "this session is read-only; sign in with CSI_ADMIN_TOKEN")
        request.state.form = form
        shown = {name: MASK if name.startswith("secret") and value else value for name, value in form.items()}
        inner, detail = self._inner, urlencode(shown, safe="[]")
        await _run_audited(self._sidecar, inner, request, receive, send, via="dashboard", role="admin", detail=detail)
        return None

    async def _sign_in(self, request: Request, rules: AccessRules, state_dir: Path) -> Response:
        key = request.query_params.get("key") if request.method == "GET" else None
        if request.method in SAFE_METHODS and key is None:
            target = _own_path(request.query_params.get("next", "/"))
            # Only an accepted token leads from the sign-in to the sign-in: the browser did not keep the session.
            came_back = urlsplit(request.headers.get("referer", "")).path == "/login"
            return standalone_page("login.html", next=target, wrong=None, without_cookie=came_back)
        check_brake(self._sidecar, request)
        if request.method in SAFE_METHODS:
            if not local_login.use_up(state_dir / local_login.SIDECAR_LINK_FILE, key or ""):
                note_wrong(self._sidecar, request)
                return standalone_page("login.html", 403, next="/", wrong="link", without_cookie=False)
            return self._signed_in(request, rules, "admin" if rules.token else "reader", "/")
        form = await _read_form(request)
        target, role = _own_path(form.get("next", "/")), auth.role_of(rules, form.get("token", "").strip())
        if role is None:
            note_wrong(self._sidecar, request)
            self._sidecar.warn("dashboard sign-in refused", "no token has this value")
            return standalone_page("login.html", 401, next=target, wrong="token", without_cookie=False)
        return self._signed_in(request, rules, role, target)

    def _signed_in(self, request: Request, rules: AccessRules, role: Role, target: str) -> Response:
        log.info("dashboard sign-in", role=role, client=request.client.host if request.client else None)
        response = RedirectResponse(target, 303)
        cookie = auth.cookie_of(auth.new_session(role, self._sidecar.now()), auth.signing_key(rules))
        # A proxy terminates TLS, so the scheme here is always http: the browser's Origin decides about `Secure`.
        is_https = request.headers.get("origin", "").startswith("https://")
        response.set_cookie(
            auth.SESSION_COOKIE, cookie, auth.SESSION_SECONDS, httponly=True, samesite="strict", secure=is_https
        )
        return response


def note_wrong(sidecar: Sidecar, request: Request) -> None:
    sidecar.brake.note_wrong(request.client.host if request.client else "")


def check_brake(sidecar: Sidecar, request: Request) -> None:
    """HttpProblem while the client's address has to wait."""
    if seconds := sidecar.brake.wait_seconds(request.client.host if request.client else ""):
        raise HttpProblem(429, f"too many wrong tokens from this address; try again in {seconds} s")


def _read_signed_out(path: Path) -> dict[str, float]:
    """Session ids with their expiry. Empty without a file; after a restart a session that signed out stays out."""
    try:
        found = json.loads(path.read_text("ascii"))
        return {str(number): float(until) for number, until in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


async def _run_audited(
    sidecar: Sidecar, inner: ASGIApp, request: Request, receive: Receive, send: Send,
    *, via: Literal["api", "dashboard"], role: Role, detail: str,
) -> None:  # fmt: skip
    """Executes a request that changes something, and stores its status also where it fails.

    Without its row in the audit log it is not executed.
    """
    action = redact(f"{request.method} {clean(request.scope['path'], 200)}"[:200])
    client = request.client.host if request.client else None
    number = await sidecar.read(lambda rt: audit.begin(rt.now(), via=via, role=role, client=client, action=action))
    started, status, refusal = time.monotonic(), None, bytearray()

    async def observed(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif (status or 0) >= 400 and len(refusal) < MAX_REFUSAL:
            refusal.extend(message.get("body", b""))
        await send(message)

    try:
        await inner(request.scope, receive, observed)
    finally:
        seconds = round(time.monotonic() - started, 3)
        log.info("admin action", action=action, client=client, status=status, seconds=seconds)
        shown = clean(redact(detail), DETAIL_CHARS) or None
        color, text = request.scope.get(RESULT) or ("", _refusal_text(bytes(refusal)))
        outcome = {"good": "done", "bad": "failed"}.get(color)
        result = clean(redact(text), DETAIL_CHARS) or None
        try:
            await sidecar.read(
                lambda rt: audit.finish(number, rt.now(), status=status, detail=shown, outcome=outcome, result=result)
            )
        except CsiError as error:
            sidecar.warn("audit record not completed", error)


def _refusal_text(body: bytes) -> str:
    """The `detail` of a problem that the admin API answered with; empty for another body."""
    try:
        found = json.loads(body)
        return str(found["detail"])
    except (ValueError, KeyError, TypeError):
        return ""


async def read_body(request: Request, most: int = MAX_BODY) -> bytes:
    """HttpProblem for a body that is too large, too slow or cut off."""
    too_large = HttpProblem(413, f"the body is larger than {most} bytes")
    length = request.headers.get("content-length", "")
    if length and "transfer-encoding" in request.headers:
        raise HttpProblem(400, "Content-Length and Transfer-Encoding cannot be sent together")
    if length.isascii() and length.isdigit() and (len(length) > 9 or int(length) > most):
        raise too_large
    body = bytearray()
    try:
        with anyio.fail_after(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError as error:
        raise HttpProblem(408, f"the body did not arrive within {BODY_SECONDS:g} s") from error
    except ClientDisconnect as error:
        raise HttpProblem(400, "the body is incomplete") from error
    return bytes(body)


async def _read_form(request: Request) -> dict[str, str]:
    """The fields of a form; the last one of several with the same name."""
    body = await read_body(request)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise HttpProblem(400, "this form cannot be read") from error


def replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that delivers the body again, for the operation behind the guard."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _own_path(text: str) -> str:
    """A path of this dashboard; `/` for the address of another site."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isascii() and text.isprintable()
    return text if is_own and len(text) <= LONGEST_NEXT else "/"
