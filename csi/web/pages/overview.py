"""`/`: what flowed, what waits and why, whether promises are kept, how far the API units go, and the receivers."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.doctor import destination
from csi.errors import CsiError
from csi.ingester.text import clean
from csi.pipeline.quota_schedule import sentence
from csi.runtime import Runtime
from csi.status import destinations
from csi.status.dashboard import Overview, backlog_age, overview
from csi.web import svg_charts
from csi.web.page_rendering import Facts, Page, back, present
from csi.web.runtime_access import Sidecar
from csi.web.session import Mood


async def show(request: Request) -> Response:
    return await present(request, "overview.html", _facts)


def _facts(rt: Runtime) -> Facts:
    found = overview(rt)
    burn = found.burn
    return {
        "found": found,
        "hour": svg_charts.throughput(found.hour, "Last hour", 900),
        "day": svg_charts.throughput(found.day, "Last day", 6 * 3600),
        "burn": svg_charts.quota_burn(burn) if burn else None,
        "forecast": sentence(burn.forecast) if burn else None,
        "backlog": backlog_age(found.now),
        "tiles": _tiles(found),
        "is_sending": rt.settings.features.delivery,
    }


def _tiles(found: Overview) -> dict[str, int]:
    counted = {one.state: 0 for one in found.health}
    for one in found.health:
        counted[one.state] += one.watches
    return {
        "waiting": sum(one.count for one in found.waiting),
        "letters": sum(found.letters.values()),
        "watches": sum(counted.values()),
        "healthy": counted.get("healthy", 0),
        "paused": counted.get("paused", 0),
    }


async def hold(request: Request) -> Response:
    reason = clean(request.state.form.get("reason", ""), 200).strip() or "by the dashboard"
    return await _act(request, lambda rt, name: _hold(rt, name, reason))


def _hold(rt: Runtime, name: str, reason: str) -> tuple[Mood, str]:
    destinations.hold(rt, name, reason)
    return "good", f"Delivery to {name} is paused. Events stay pending until you resume it."


async def resume(request: Request) -> Response:
    return await _act(request, _resume)


def _resume(rt: Runtime, name: str) -> tuple[Mood, str]:
    destinations.resume(rt, name)
    return "good", f"Delivery to {name} goes on."


async def test(request: Request) -> Response:
    return await _act(request, _test)


def _test(rt: Runtime, name: str) -> tuple[Mood, str]:
    """A signed empty batch; its answer is told in words."""
    found = destination.check(rt, name)
    status = f"http {found.status}" if found.status is not None else "no answer"
    text = f"{name}: {status} after {found.seconds:.1f} s; {found.text}"
    return ("good" if found.is_good else "bad"), text


async def _act(request: Request, act: Callable[[Runtime, str], tuple[Mood, str]]) -> Response:
    """Do something to one destination, and tell what came of it."""
    sidecar: Sidecar = request.app.state.sidecar
    name = request.path_params["name"]
    try:
        mood, text = await sidecar.work(lambda rt: act(rt, destinations.configured_name(rt, name)))
    except CsiError as error:
        mood, text = "bad", str(error)
    return back(request, "/#destinations", text, mood)


PAGE = Page(
    "/",
    "Overview",
    10,
    [
        Route("/", show, methods=["GET"]),
        Route("/destinations/{name}/pause", hold, methods=["POST"]),
        Route("/destinations/{name}/resume", resume, methods=["POST"]),
        Route("/destinations/{name}/test", test, methods=["POST"]),
    ],
)
