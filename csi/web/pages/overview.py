"""`/`: the verdict, counts of events, backlog with reasons, objectives, API units and destinations."""

from starlette.requests import Request
from starlette.responses import Response

from csi.admin import incidents
from csi.pipeline.quota_schedule import Forecast, sentence
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
from csi.web.svg_charts import Chart

PAGE = DashboardPage("/", "Overview", 10, key="o")


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
        "hour": svg_charts.throughput(flow_chart(found.now, HOUR, 300), "Last hour", 900),
        "day": svg_charts.throughput(flow_chart(found.now, DAY, 3600), "Last day", 6 * 3600),
        "burn": _quota_burn(found.quota, found.now) if found.quota else None,
        "forecast": sentence(found.quota) if found.quota else None,
    }


def _quota_burn(forecast: Forecast, now: float) -> Chart:
    used = api_units.used_by_hour()
    start = api_units.day_starts(now)
    hours = range(int(start // HOUR), int(now // HOUR) + 1)
    # Counted backwards from the ledger's current value.
    later = [sum(used.get(after, 0) for after in hours if after > hour) for hour in hours]
    return svg_charts.quota_burn(forecast, now, start, [min(forecast.left + units, forecast.limit) for units in later])


@PAGE.endpoint("POST", "/problems/{number}/acknowledge")
async def acknowledge(request: Request) -> Response:
    """Ends the problem of an incident."""
    number = number_of(request.path_params["number"])

    def end(rt: Runtime) -> str:
        incidents.acknowledge(rt, number or 0, "dashboard")
        return f"Incident {number} is acknowledged."

    return await change(request, "/", end)
