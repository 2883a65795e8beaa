"""`/schedule`: what happens next: reads that come, batches that travel, wake-ups that wait."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from csi.runtime import Runtime
from csi.status.upcoming import SHOWN, agenda_of
from csi.web.facts import gather
from csi.web.health import FRESH_SECONDS, is_beating
from csi.web.page_rendering import Facts, Page, present


async def show(request: Request) -> Response:
    return await present(request, "schedule.html", _facts)


def _facts(rt: Runtime) -> Facts:
    return {"found": agenda_of(rt), "is_alive": is_beating(gather(rt), FRESH_SECONDS), "most": SHOWN}


PAGE = Page("/schedule", "Schedule", 50, [Route("/schedule", show, methods=["GET"])])
