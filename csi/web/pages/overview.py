"""`/`: the verdict, counts of events, backlog with reasons, objectives, API units and destinations."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from csi.admin import destinations, incidents
from csi.doctor import destination_check
from csi.ingester.text import clean
from csi.pipeline.quota_schedule import Forecast, sentence
from csi.runtime import Runtime
from csi.status.backlog import queued
from csi.status.delivery_problems import certificate_text
from csi.status.destinations import STATE_TEXTS, configured_name
from csi.status.overview import overview
from csi.status.slo import DAY, HOUR, objectives
from csi.store import api_units, counters
from csi.store.queries.charts import flow_chart
from csi.web import svg_charts
from csi.web.page_rendering import Context, DashboardPage, change, number_of
from csi.web.responses import HttpProblem
from csi.web.svg_charts import Chart

PAGE = DashboardPage("/", "Overview", 10)


@PAGE.view("/", "overview.html")
def show(rt: Runtime, request: Request) -> Context:
    found = overview(rt)
    return {
        "found": found,
        "watches": found.watch_states,
        "queued": queued(found.backlog),
        "backlog_age": found.backlog_age,
        "objectives": list(objectives(found.day)),
        "state_texts": STATE_TEXTS,
        "certificate_text": certificate_text,
        "hour": svg_charts.throughput(flow_chart(found.now, HOUR, 60), "Last hour", 900),
        "day": svg_charts.throughput(flow_chart(found.now, DAY, 1800), "Last day", 6 * 3600),
        "burn": _quota_burn(found.quota, found.now) if found.quota else None,
        "forecast": sentence(found.quota) if found.quota else None,
    }


def _quota_burn(forecast: Forecast, now: float) -> Chart:
    used = {label: int(value) for (_, label), value in counters.all_of(api_units.HOURLY).items()}
    start = api_units.day_starts(now)
    hours = range(int(start // HOUR), int(now // HOUR) + 1)
    # Counted backwards from the ledger's current value: the API may have corrected it.
    later = [sum(used.get(str(after), 0) for after in hours if after > hour) for hour in hours]
    return svg_charts.quota_burn(forecast, now, start, [min(forecast.left + units, forecast.limit) for units in later])


@PAGE.endpoint("POST", "/problems/{number}/acknowledge")
async def acknowledge(request: Request) -> Response:
    """Ends the problem of an incident."""
    number = number_of(request.path_params["number"])

    def end(rt: Runtime) -> str:
        incidents.acknowledge(rt, number or 0, "dashboard")
        return f"Incident {number} is acknowledged."

    return await change(request, "/", end)


@PAGE.endpoint("POST", "/destinations/{name}/pause")
async def pause(request: Request) -> Response:
    reason = clean(request.state.form.get("reason", ""), 200).strip() or "by the dashboard"

    def stop(rt: Runtime, name: str) -> str:
        destinations.pause(rt, name, reason)
        return f"Delivery to {name} is paused. Its events stay pending until you resume it."

    return await _change(request, stop)


@PAGE.endpoint("POST", "/destinations/{name}/resume")
async def resume(request: Request) -> Response:
    def start(rt: Runtime, name: str) -> str:
        destinations.resume(rt, name)
        return f"Delivery to {name} is resumed."

    return await _change(request, start)


@PAGE.endpoint("POST", "/destinations/{name}/test")
async def test(request: Request) -> Response:
    """Sends a signed empty batch, and explains the response."""

    def send(rt: Runtime, name: str) -> str:
        found = destination_check.check(rt, name)
        status = f"http {found.status}" if found.status is not None else "no response"
        text = f"{name}: {status} after {found.seconds:.1f} s; {found.text}"
        if not found.is_good:
            raise HttpProblem(502, text)
        return text

    return await _change(request, send)


async def _change(request: Request, act: Callable[[Runtime, str], str]) -> Response:
    name = request.path_params["name"]
    return await change(request, "/#destinations", lambda rt: act(rt, configured_name(rt, name)))
