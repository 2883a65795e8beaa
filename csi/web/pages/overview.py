"""`/`: the verdict, counts of events, backlog with reasons, objectives, API units and destinations."""

from starlette.requests import Request
from starlette.responses import Response

from csi.admin import incidents
from csi.pipeline.quota_schedule import sentence
from csi.runtime import Runtime
from csi.status.backlog import queued
from csi.status.delivery_problems import certificate_text
from csi.status.destinations import STATE_TEXTS
from csi.status.overview import overview
from csi.status.slo import DAY, HOUR, objectives
from csi.store import api_units
from csi.store.queries.charts import flow_chart
from csi.web import svg_charts
from csi.web.page_rendering import Context, DashboardPage, change, number_of

PAGE = DashboardPage("/", "Overview", 10, key="o")


@PAGE.view("/", "overview.html")
def show(rt: Runtime, request: Request) -> Context:
    found, burn = overview(rt), None
    if found.quota:
        forecast, used = found.quota, api_units.used_by_hour()
        start = api_units.day_starts(found.now)
        hours = range(int(start // HOUR), int(found.now // HOUR) + 1)
        # Counted backwards from the ledger's current value.
        later = [sum(used.get(after, 0) for after in hours if after > hour) for hour in hours]
        left = [min(forecast.left + units, forecast.limit) for units in later]
        burn = svg_charts.quota_burn(forecast, found.now, start, left)
    return {
        "found": found,
        "watches": found.watch_states,
        "queued": queued(found.backlog),
        "backlog_age": found.backlog_age,
        "objectives": list(objectives(found.day)),
        "state_texts": STATE_TEXTS,
        "certificate_text": certificate_text,
        "hour": svg_charts.throughput(flow_chart(found.now, HOUR, 300), "Last hour", 900),
        "day": svg_charts.throughput(flow_chart(found.now, DAY, 3600), "Last day", 6 * 3600),
        "burn": burn,
        "forecast": sentence(found.quota) if found.quota else None,
    }


@PAGE.endpoint("POST", "/problems/{number}/acknowledge")
async def acknowledge(request: Request) -> Response:
    """Ends the problem of an incident."""
    number = number_of(request.path_params["number"])

    def end(rt: Runtime) -> str:
        incidents.acknowledge(rt, number or 0, "dashboard")
        return f"Incident {number} is acknowledged."

    return await change(request, "/", end)
