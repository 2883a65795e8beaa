"""`/inbound`: subscriptions at hubs, senders of webhooks and their messages; add, rotate, test, remove, replay."""

from collections.abc import Callable

from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

from csi.admin import inbound
from csi.admin.inbound import InboundRefused, SenderAccess
from csi.config.durations import parse_duration
from csi.errors import CsiError
from csi.runtime import Runtime
from csi.status import push
from csi.store import inbound_messages
from csi.web.formatting import plural
from csi.web.page_rendering import Context, DashboardPage, change, redirect, render_page
from csi.web.responses import HttpProblem

PATH = "/inbound"
GRACES = ("0s", "1h", "1d", "7d")
SHOWN = 50


def _count(rt: Runtime) -> int:
    return sum(group.messages for group in inbound_messages.failed())


PAGE = DashboardPage(PATH, "Inbound", 37, _count)


@PAGE.view(PATH, "inbound.html")
def show(rt: Runtime, request: Request) -> Context:
    wanted = request.query_params.get("state", "")
    state = wanted if wanted in ("new", "done", "failed") else None
    return {
        "served": rt.settings.serves_hooks,
        "found": push.push_facts(rt),
        "messages": inbound_messages.newest(SHOWN, state=state),
        "state": state or "",
        "sources": sorted(rt.settings.sources),
        "graces": GRACES,
    }


@PAGE.endpoint("POST", PATH)
async def add(request: Request) -> Response:
    form: dict[str, str] = request.state.form

    def make(rt: Runtime) -> SenderAccess:
        if form.get("kind") not in ("events", "items"):
            raise InboundRefused("choose events or items; Composio is added by `csi inbound add NAME --kind composio`")
        source, ref = (form.get(key, "").strip() or None for key in ("source", "watch"))
        tier = form.get("tier") or "standard"
        return inbound.add(rt, form.get("name", "").strip(), form["kind"], source=source, ref=ref, tier=tier)

    return await _show_once(request, make, "Not added")


@PAGE.endpoint("POST", f"{PATH}/{{name}}/rotate")
async def rotate(request: Request) -> Response:
    form: dict[str, str] = request.state.form

    def make(rt: Runtime) -> SenderAccess:
        if form.get("grace") not in GRACES:
            raise HttpProblem(400, "choose how long the previous secret is accepted")
        grace = parse_duration(form["grace"])
        return inbound.rotate(rt, request.path_params["name"], grace=grace, new_address=form.get("address") == "yes")

    return await _show_once(request, make, "Not rotated")


async def _show_once(request: Request, make: Callable[[Runtime], SenderAccess], failed: str) -> Response:
    """In the response to this request, not after a redirect: no cookie, no URL and no later page has the secret."""
    try:
        made = await request.app.state.sidecar.run(make)
    except CsiError as error:
        return redirect(request, PATH, f"{failed}: {error}", "bad")
    # Escaped here: the templates mask every known secret in plain text.
    shown = {"name": made.name, "url": escape(made.url), "secret": made.secret and escape(made.secret)}
    return await render_page(request, "inbound_secret.html", lambda rt, _: shown | {"served": made.is_served})


@PAGE.endpoint("POST", f"{PATH}/{{name}}/test")
async def test(request: Request) -> Response:
    """A signed curl command, valid for five minutes."""
    name = request.path_params["name"]
    try:
        command = await request.app.state.sidecar.run(lambda rt: inbound.signed_request(rt, name))
    except CsiError as error:
        return redirect(request, PATH, f"No command: {error}", "bad")
    return await render_page(request, "inbound_command.html", lambda rt, _: {"name": name, "command": escape(command)})


@PAGE.endpoint("POST", f"{PATH}/{{name}}/remove")
async def remove(request: Request) -> Response:
    name = request.path_params["name"]
    if request.state.form.get("sure") != "yes":
        return redirect(request, PATH, "Nothing was removed: tick the box to confirm.", "bad")

    def end(rt: Runtime) -> str:
        if not inbound.remove(name):
            raise HttpProblem(404, "there is no such sender")
        return f"{name} is removed; its messages are kept."

    return await change(request, PATH, end)


@PAGE.endpoint("POST", f"{PATH}/messages/replay")
async def replay(request: Request) -> Response:
    """One message, or all that failed."""
    text = request.state.form.get("id", "")

    def again(rt: Runtime) -> str:
        if text and not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise HttpProblem(404, "there is no such message")
        done = inbound.replay(rt, [int(text)] if text else [], all_failed=not text)
        return f"{plural(len(done), 'message')} handled again."

    return await change(request, PATH, again)
