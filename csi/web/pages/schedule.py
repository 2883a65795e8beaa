"""`/schedule`: what happens next: polls, batches, the worker's queue."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.status.upcoming import SHOWN, upcoming
from csi.web.page_rendering import DashboardPage, render_page


async def show(request: Request) -> Response:
    return await render_page(request, "schedule.html", lambda rt: {"found": upcoming(rt), "most": SHOWN})


PAGE = DashboardPage("/schedule", "Schedule", 50, [Route("/schedule", show, methods=["GET"])])
