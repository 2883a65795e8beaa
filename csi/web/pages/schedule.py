"""`/schedule`: what happens next: polls, batches, the worker's queue."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.runtime import Runtime
from csi.status.upcoming import SHOWN, upcoming
from csi.web.page_rendering import Facts, Page, present


async def show(request: Request) -> Response:
    return await present(request, "schedule.html", _facts)


def _facts(rt: Runtime) -> Facts:
    return {"found": upcoming(rt), "most": SHOWN}


PAGE = Page("/schedule", "Schedule", 50, [Route("/schedule", show, methods=["GET"])])
