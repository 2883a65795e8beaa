"""`/`: the verdict, counts of events, backlog with reasons, objectives, API units and destinations."""

from collections import Counter
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.admin import destinations
from csi.doctor import destination
from csi.errors import CsiError
from csi.ingester.text import clean
from csi.pipeline.quota_schedule import sentence
from csi.runtime import Runtime
from csi.status.backlog import queued
from csi.status.charts import flow_chart, quota_burn
from csi.status.destinations import STATE_TEXTS, configured_name
from csi.status.overview import overview
from csi.status.slo import DAY, HOUR, objectives
from csi.web import svg_charts
from csi.web.page_rendering import Facts, Page, back, present
from csi.web.runtime_access import Sidecar
from csi.web.session import Mood


async def show(request: Request) -> Response:
    return await present(request, "overview.html", facts)


def facts(rt: Runtime) -> Facts:
    found = overview(rt)
    watches: Counter[str] = Counter()
    for one in found.watches:
        watches[one.state] += one.watches
    return {
        "found": found,
        "watches": watches,
        "queued": queued(found.backlog),
        "backlog_age": 0.0 if found.oldest_pending is None else max(found.now - found.oldest_pending, 0.0),
        "objectives": list(objectives(found.day)),
        "state_texts": STATE_TEXTS,
        "hour": svg_charts.throughput(flow_chart(found.now, HOUR, 60), "Last hour", 900),
        "day": svg_charts.throughput(flow_chart(found.now, DAY, 1800), "Last day", 6 * 3600),
        "burn": svg_charts.quota_burn(quota_burn(found.quota, found.now)) if found.quota else None,
        "forecast": sentence(found.quota) if found.quota else None,
    }


async def pause(request: Request) -> Response:
    reason = clean(request.state.form.get("reason", ""), 200).strip() or "by the dashboard"
    return await _act(request, lambda rt, name: _pause(rt, name, reason))


def _pause(rt: Runtime, name: str, reason: str) -> tuple[Mood, str]:
    destinations.pause(rt, name, reason)
    return "good", f"Delivery to {name} is paused. Its events stay pending until you resume it."


async def resume(request: Request) -> Response:
    return await _act(request, _resume)


def _resume(rt: Runtime, name: str) -> tuple[Mood, str]:
    destinations.resume(rt, name)
    return "good", f"Delivery to {name} is resumed."


async def test(request: Request) -> Response:
    return await _act(request, _test)


def _test(rt: Runtime, name: str) -> tuple[Mood, str]:
    """Send a signed empty batch, and explain the answer."""
    found = destination.check(rt, name)
    status = f"http {found.status}" if found.status is not None else "no answer"
    text = f"{name}: {status} after {found.seconds:.1f} s; {found.text}"
    return ("good" if found.is_good else "bad"), text


async def _act(request: Request, act: Callable[[Runtime, str], tuple[Mood, str]]) -> Response:
    """Change one destination, and show the result."""
    sidecar: Sidecar = request.app.state.sidecar
    name = request.path_params["name"]
    try:
        mood, text = await sidecar.work(lambda rt: act(rt, configured_name(rt, name)))
    except CsiError as error:
        mood, text = "bad", str(error)
    return back(request, "/#destinations", text, mood)


PAGE = Page(
    "/",
    "Overview",
    10,
    [
        Route("/", show, methods=["GET"]),
        Route("/destinations/{name}/pause", pause, methods=["POST"]),
        Route("/destinations/{name}/resume", resume, methods=["POST"]),
        Route("/destinations/{name}/test", test, methods=["POST"]),
    ],
)
